"""FedEgoists: each participant's model is trained on the weighted losses of its contributors.

Chen, Wu, Tang, He, Ong, Liu, Lao and Yu, "Free-Rider and Conflict Aware Collaboration Formation for
Cross-Silo Federated Learning", NeurIPS 2024, Section 5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedegoists.errors import SettingsError
from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import TrainSettings
from fedegoists.federation.seam import Federation
from fedegoists.federation.silo_operations import learning_rates
from fedegoists.methods.fedegoists.joint_steps import JointSteps
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    RoundReport,
    State,
    in_company,
    setting,
)
from fedegoists.methods.silo_training import train_silos


@dataclass(frozen=True)
class FedEgoists(MethodSettings):
    """Minimise Σ_j r_j ℓ_j(h_i) with h_i = HN_i(r), over participant i and its contributors j.

    After training alone for a while (a share of the settings' total steps; without a total there is
    no warm-up), each participant has a hypernetwork that starts at its local model, and the
    learning rate starts anew. Then two steps alternate: one on the hypernetwork, along the
    gradients of i and its contributors on training batches, and one on the preferences r, with a
    batch of i's own validation data.

    How the validation loss depends on r can be found in two ways. As published, r is an input of
    the hypernetwork, and the gradient goes back to it. But that network has never seen other
    preferences, so its slope says little, and it may well prefer contributors that do harm. By
    alignment, r_j grows where a step along j's gradient also lowers i's validation loss: the cosine
    of the two gradients, which is the derivative through one training step.

    A contributor sees the model that it is asked to help, and nothing else; it is in the same
    coalition, so no competitor ever does. Where output layers are personal, a contributor's
    gradient is taken with its own one, which its own contributors have shaped: influence then
    travels along paths of benefit edges, not only along single ones. Learning rates are divided by
    the hypernetwork's gain, so that a step moves h_i as far as a step of plain descent would. The
    released code trains over all members of a coalition (`whole_coalition`) and takes its joint
    steps on top of as many local ones as Local has; here both phases together have as many.

    Attributes
    ----------
    benefit : tuple of pairs of Participant, optional
        The edges of the benefit graph, as (contributor, beneficiary); without it, all members of a
        coalition benefit each other.
    """

    benefit: tuple[tuple[Participant, Participant], ...] | None = None
    own_weight: float = setting(0.8, "a participant's first preference for itself", 0.01, 1)
    warm_up: float = setting(
        0.5, "fraction of all steps in which participants train alone first", 0, 1
    )
    preferences: str = setting(
        "alignment", "how preferences are learned", choices=("alignment", "hypernetwork")
    )
    preference_rate: float = setting(0.01, "learning rate of the preferences", 0, 1e6)
    generator: str = setting(
        "hypernetwork",
        "what makes the models: a network, or nothing",
        choices=("hypernetwork", "direct"),
    )
    hidden: int = setting(100, "width of the hypernetworks' hidden layers", 1, 10_000)
    layers: int = setting(2, "their hidden layers", 1, 10)
    whole_coalition: bool = setting(False, "whether all members contribute, benefit or not")

    key: ClassVar[str] = "fedegoists"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.generator == "direct" and self.preferences == "hypernetwork":
            raise SettingsError(
                "fedegoists: without a hypernetwork preferences cannot be learned through it; "
                "choose preferences alignment"
            )

    def contributors(
        self, coalitions: Coalitions, participants: Sequence[Participant]
    ) -> dict[Participant, list[Participant]]:
        """Return the contributors of all participants that have any: edges in their coalition."""
        in_company(coalitions, participants)
        unknown = {name for edge in self.benefit or () for name in edge} - set(participants)
        if unknown:
            raise SettingsError(
                f"the benefit graph names {min(unknown)!r}, which does not take part"
            )
        edges = None if self.benefit is None or self.whole_coalition else set(self.benefit)
        found = {
            name: [
                other
                for other in group
                if other != name and (edges is None or (other, name) in edges)
            ]
            for group in coalitions
            for name in group
        }
        # With all weight on oneself there are no contributors.
        return {name: found[name] for name in participants if found[name] and self.own_weight < 1}

    def phases(self) -> tuple[int, TrainSettings, TrainSettings]:
        """Return the rounds of the warm-up, and how it and the joint phase train.

        The learning rate falls along a cosine of its own in each phase: with one cosine for both, a
        warm-up of half the steps would leave 18 % of all rates to the joint phase.
        """
        settings = self.settings
        if settings.total_steps is None:
            return 0, settings, settings
        # Rounded down, so that even a single round has joint steps.
        warm_up = int(self.warm_up * settings.total_steps / settings.steps)
        joint = max(settings.total_steps - warm_up * settings.steps, 1)
        first = settings.changed(total_steps=max(warm_up * settings.steps, 1))
        return warm_up, first, settings.changed(total_steps=joint)

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train alone during the warm-up; afterwards take a round of joint steps.

        Participants without contributors train alone throughout, as Local does.
        """
        contributors = self.contributors(coalitions, federation.participants)
        alone = [name for name in federation.participants if name not in contributors]
        trained = train_silos(self, federation, state, seed, names=alone)
        if not contributors:
            return state.after(parameters=trained.rows), trained.report
        first_joint, warm, together = self.phases()
        if state.round < first_joint:
            warmed = train_silos(
                self,
                federation,
                state,
                seed,
                names=list(contributors),
                rows=trained.rows,
                settings=warm,
            )
            return state.after(parameters=warmed.rows), trained.report | warmed.report
        joint = JointSteps(self, federation, contributors, state, seed)
        first_step = (state.round - first_joint) * self.settings.steps
        for step, rate in enumerate(learning_rates(together, first_step)):
            joint.step(state.round * self.settings.steps + step, rate)
        parameters = trained.rows.clone()
        parameters[joint.rows] = joint.models()
        return (
            state.after(
                parameters=parameters,
                preferences=joint.preferences,
                **{f"network.{name}": value for name, value in joint.networks.tensors.items()},
            ),
            trained.report | joint.report,
        )
