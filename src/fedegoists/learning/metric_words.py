"""Names of metrics for people; files have their short names."""

METRIC_WORDS = {
    "auc": "AUC",
    "accuracy": "accuracy",
    "mse": "mean squared error",
    "c-index": "concordance",
}


def metric_words(metric: str) -> str:
    """Return a metric's name for people; a user's own is as it is.

    Examples
    --------
    >>> metric_words("auc"), metric_words("dice")
    ('AUC', 'dice')
    """
    return METRIC_WORDS.get(metric, metric)
