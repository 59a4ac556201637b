"""Pictures of coalitions over benefit and competition."""

from fedegoists.coalitions.drawing.picture import draw, render

__all__ = ["draw", "render"]
