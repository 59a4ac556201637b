"""What a run is doing, in plain words."""

STAGE_WORDS = {
    "beginning": "Preparing",
    "data": "Looking at the data",
    "benefit": "Learning who benefits from whom",
    "formation": "Forming coalitions",
    "training": "Training",
    "report": "Writing reports",
}

PART_WORDS = {
    "weight decay": "choosing settings of the model",
    "local training": "each member by itself",
    "transfer": "models of members on the data of others",
    "learning curves": "how much further data helps",
    "hypernetwork": "one model for all mixtures of members",
    "preferences": "which mixture is best for each member",
}


def stage_words(stage: str) -> str:
    """Return what a stage of a run does; after a colon, which of its parts is in progress.

    Examples
    --------
    >>> stage_words("benefit: local training"), stage_words("training: fedavg")
    ('Learning who benefits from whom: each member by itself', 'Training with fedavg')
    """
    name, _, part = stage.partition(": ")
    words = STAGE_WORDS.get(name, stage)
    if part in PART_WORDS:
        return f"{words}: {PART_WORDS[part]}"
    return f"{words} with {part}" if part and name == "training" else words
