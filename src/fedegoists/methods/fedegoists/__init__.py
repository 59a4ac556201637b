"""FedEgoists: the paper's training method."""

from fedegoists.methods.fedegoists.fedegoists_method import FedEgoists

__all__ = ["FedEgoists"]
