"""Tasks, models and silo data: everything between private data and a trained model."""
