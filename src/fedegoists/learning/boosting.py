"""Gradient boosting with LightGBM: new trees for what a model leaves unexplained."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedegoists.errors import MissingDependencyError
from fedegoists.install_hints import install_command
from fedegoists.learning.data import TaskName

if TYPE_CHECKING:
    import lightgbm

Numbers = npt.NDArray[np.float32]

OBJECTIVES: dict[TaskName, str] = {
    "binary": "binary",
    "classification": "multiclass",
    "regression": "regression",
}
"""The losses of the tasks, as LightGBM names them; that of survival is `cox_derivatives`."""
LEAST_CURVATURE = 1e-6
"""Second derivative of a sample that tells nothing, so that LightGBM can divide by sums of them."""

FIXED: dict[str, Any] = {
    "boost_from_average": False,  # the model so far is given
    "use_missing": False,
    "feature_pre_filter": False,
    "lambda_l2": 1.0,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "feature_fraction": 0.8,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbosity": -1,
}


@dataclass(frozen=True)
class GrownTrees:
    """Trees as complete binary trees, see `fedegoists.learning.forest.Forest`.

    Attributes
    ----------
    feature, threshold : array, trees × outputs × nodes
        The split of each node.
    leaf : array, trees × outputs × leaves
        The value of each leaf.
    """

    feature: Numbers
    threshold: Numbers
    leaf: Numbers


def require_lightgbm() -> None:
    """Refuse to go on without LightGBM.

    Raises
    ------
    MissingDependencyError
        With the command that installs it.
    """
    try:
        import lightgbm  # noqa: F401
    except ImportError:
        raise MissingDependencyError(
            f"boosted trees need lightgbm: {install_command('trees')}"
        ) from None


def grown_booster(
    inputs: Numbers,
    targets: npt.NDArray[Any],
    scores: npt.NDArray[np.float64],
    task: TaskName,
    *,
    trees: int,
    rate: float,
    depth: int,
    least: int,
    seed: int,
    weights: Numbers | None = None,
) -> "lightgbm.Booster":
    """Return the booster that LightGBM trains on top of a model's outputs.

    Parameters
    ----------
    scores : array, samples × outputs
        The outputs of the model so far.
    trees : int
        New trees for each output.
    rate : float
        The learning rate.
    least : int
        The fewest training samples in a leaf; fewer where there are fewer than 20 times as many.
    weights : array, optional
        The weight of each sample.
    """
    require_lightgbm()
    import lightgbm

    count, outputs = scores.shape
    settings = {
        **FIXED,
        "objective": OBJECTIVES.get(task) or _cox_objective(targets, weights),
        "learning_rate": rate,
        "max_depth": depth,
        "num_leaves": 2**depth,
        "min_data_in_leaf": max(1, min(least, count // 20)),
        "seed": seed % 2**31,
        **({"num_class": outputs} if task == "classification" else {}),
    }
    data = lightgbm.Dataset(
        inputs,
        targets,
        weight=weights,
        init_score=scores if task == "classification" else scores[:, 0],
        free_raw_data=False,
    )
    return lightgbm.train(settings, data, num_boost_round=trees)


def cox_derivatives(
    risks: npt.NDArray[np.float64],
    targets: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64] | None = None,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return first and second derivatives of Cox's partial likelihood, negative and logarithmic.

    By each sample's own risk, with Breslow's rule for equal times; see
    `fedegoists.learning.task.partial_likelihood`, whose sum over events it is.

    Parameters
    ----------
    risks : array
        Logarithms of relative risks.
    targets : array
        Times; negative if censored.
    weights : array, optional
        How much each sample counts.

    Examples
    --------
    Three patients with equal risks; the first has the only event, and all three were at risk.

    >>> first, second = cox_derivatives(np.zeros(3), np.array([1.0, -2.0, -3.0]))
    >>> first.round(4).tolist(), second.round(4).tolist()  # 1/3 − 1 and 1/3; 1/3 − 1/9
    ([-0.6667, 0.3333, 0.3333], [0.2222, 0.2222, 0.2222])
    """
    times, own = np.abs(targets), np.ones(len(risks)) if weights is None else weights
    relative = own * np.exp(risks - risks.max(initial=-np.inf))
    order = np.argsort(-times, kind="stable")
    # Where each distinct time, from the latest on, ends in this order: all with it are at risk.
    distinct, place = np.unique(-times, return_inverse=True)
    ends = np.searchsorted(-times[order], distinct, side="right") - 1
    at_risk = np.cumsum(relative[order])[ends]
    deaths = np.bincount(place, weights=np.where(targets > 0, own, 0.0))
    # A sample was at risk at all events of its own time and before: later ones in this order.
    passed, squared = (np.cumsum((deaths / at_risk**power)[::-1])[::-1][place] for power in (1, 2))
    first = relative * passed - np.where(targets > 0, own, 0.0)
    second = relative * passed - relative**2 * squared
    return first, second


def _cox_objective(
    targets: npt.NDArray[Any], weights: Numbers | None
) -> Callable[[npt.NDArray[Any], Any], tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Return the objective as LightGBM calls it, with risks and its own data set."""
    times = targets.astype(np.float64)
    own = None if weights is None else weights.astype(np.float64)

    def objective(risks: npt.NDArray[Any], _: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        first, second = cox_derivatives(risks.astype(np.float64), times, own)
        return first, np.maximum(second, LEAST_CURVATURE)

    return objective


def complete_trees(
    booster: "lightgbm.Booster", *, trees: int, outputs: int, depth: int, features: int
) -> GrownTrees:
    """Return a booster's trees as complete ones; exactly as many as asked for.

    Inputs are 32-bit floats, so that a threshold can be rounded down to the next one of these
    without a change to any comparison.
    """
    nodes = 2**depth - 1
    feature = np.full((trees, outputs, nodes), features, np.float32)
    threshold = np.zeros((trees, outputs, nodes), np.float32)
    leaf = np.zeros((trees, outputs, nodes + 1), np.float32)
    found = booster.dump_model()["tree_info"]
    for k, tree in enumerate(found[: trees * outputs]):
        place = divmod(k, outputs)
        _write(tree["tree_structure"], 0, feature[place], threshold[place], leaf[place])
    return GrownTrees(feature, threshold, leaf)


def _write(
    node: Mapping[str, Any], place: int, feature: Numbers, threshold: Numbers, leaf: Numbers
) -> None:
    """Write a node and all below it into the arrays of one tree."""
    if "split_feature" in node:
        assert node["decision_type"] == "<="  # no column is declared to be one of categories
        feature[place] = node["split_feature"]
        threshold[place] = rounded_down(node["threshold"])
        _write(node["left_child"], 2 * place + 1, feature, threshold, leaf)
        _write(node["right_child"], 2 * place + 2, feature, threshold, leaf)
        return
    first, last, nodes = place, place, len(feature)
    while first < nodes:  # all leaves below
        first, last = 2 * first + 1, 2 * last + 2
    leaf[first - nodes : last - nodes + 1] = node["leaf_value"]


def rounded_down(value: float) -> np.float32:
    """Return the largest 32-bit float that is not above a number.

    Examples
    --------
    >>> float(rounded_down(0.1)) <= 0.1 < float(np.nextafter(rounded_down(0.1), np.float32(1)))
    True
    """
    near = np.float32(value)
    return near if float(near) <= value else np.nextafter(near, np.float32(-np.inf))
