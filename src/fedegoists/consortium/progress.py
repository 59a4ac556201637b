"""Progress of a run: the one protocol between a run and the views that show it."""

from typing import Protocol


class Progress(Protocol):
    """View of a run in progress: the command line's live view, or a run of the coordinator."""

    def __call__(self, stage: str, what: str, done: int, total: int, remark: str) -> None:
        """Show the progress of a stage.

        Parameters
        ----------
        stage : str
            One of `fedegoists.consortium.pipeline.STAGES`.
        what : str
            The part of the stage, such as a training method. Empty when a stage begins; then
            nothing is counted yet.
        done, total : int
            Finished and planned units of work.
        remark : str
            Anything else worth showing, such as the current metric.
        """

    def message(self, text: str, *, waiting: bool = False) -> None:
        """Show a message beside the progress, such as a silo that does not answer.

        Parameters
        ----------
        text : str
            The message.
        waiting : bool
            Whether the run makes no progress until something outside it changes.
        """


class _Silent:
    def __call__(self, stage: str, what: str, done: int, total: int, remark: str) -> None:
        pass

    def message(self, text: str, *, waiting: bool = False) -> None:
        pass


SILENT: Progress = _Silent()
"""Shows nothing."""
