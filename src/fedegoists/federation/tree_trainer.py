"""The trainer of boosted trees: it grows new trees at home, and weighs those of others."""

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.batches import stream_seed
from fedegoists.federation.module_trainer import ModuleTrainer
from fedegoists.federation.replies import Gradients, Trained
from fedegoists.federation.requests import Gradient, Train
from fedegoists.federation.silo_operations import Silo, class_weights, weighted
from fedegoists.learning.boosting import complete_trees, grown_booster, require_lightgbm
from fedegoists.learning.contributor_weights import chosen_weights
from fedegoists.learning.forest import Forest, malformed, room, used_trees
from fedegoists.learning.network import Network

NO_GRADIENTS = (
    "boosted trees have no gradients and no common parameters to average; the methods local and "
    "bagging work with them, and so does the estimator transfer"
)


class TreeTrainer(ModuleTrainer):
    """Grows and evaluates a `Forest` on one silo's samples; see `Trainer`.

    A step of training is one new tree for each output, at the learning rate of the settings. With
    a learning rate of zero no tree is grown; instead, the weights of all contributors are chosen
    on the silo's own validation samples.
    """

    def __init__(self, network: Network) -> None:
        require_lightgbm()
        super().__init__(network)
        assert isinstance(network.model, Forest)
        self._forest = network.model

    def train(self, silo: Silo, request: Train, seed: int) -> Trained:
        """Grow trees for what the given model leaves unexplained, or choose weights."""
        settings = request.settings
        if settings.clip is not None or settings.noise:
            raise SettingsError(
                "boosted trees cannot be trained with privacy: the noise is made for gradients; "
                "use logistic or linear, or no privacy"
            )
        if settings.sam_radius:
            raise SettingsError("boosted trees take no steps of descent; leave out sam_radius")
        terms = request.terms
        if terms is not None and (set(terms.tensors) - {"momentum"} or terms.representation):
            raise SettingsError(NO_GRADIENTS)
        self._check(request.parameters)
        vector = request.parameters.clone()
        if settings.learning_rate:
            self._grow(silo, request, vector, seed)
        else:
            self._weigh(silo, vector)
        rows = silo.splits["train"]
        outputs, targets = self._outputs(silo, vector, rows)
        return Trained(
            parameters=vector,
            loss=self.task.loss(outputs, targets, weighted(None, silo.factors(rows))).item(),
            samples=len(rows),
            sample_passes=settings.sample_passes(len(rows)),
            momentum=None if request.terms is None else request.terms.momentum,
        )

    def _check(self, vector: Tensor) -> None:
        problem = malformed(self.schema, vector, self._forest.features)
        if problem:
            raise SettingsError(f"these parameters are no forest: {problem}")

    def _outputs(self, silo: Silo, row: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        self._check(row)
        return super()._outputs(silo, row, positions)

    def _grow(self, silo: Silo, request: Train, vector: Tensor, seed: int) -> None:
        """Add trees to the first slot of a forest, in place."""
        forest, settings = self._forest, request.settings
        parts = self.schema.unflatten(vector)
        used, (_, most) = used_trees(parts, forest.features), room(self.schema)
        if used + settings.steps > most:
            raise SettingsError(
                f"the forest has room for {most} trees of each participant, {used} are there, and "
                f"{settings.steps} more are asked for; set trees = {used + settings.steps} or more "
                "under [training.model_settings], or fewer steps"
            )
        positions = silo.splits["train"]
        (inputs,), targets = silo.batch(positions)
        if not used:
            parts["intercept"].copy_(self._intercept(targets, silo.factors(positions)))
        scores, _ = self._outputs(silo, vector, positions)
        weights = silo.factors(positions, class_weights(silo, settings.class_weights))
        booster = grown_booster(
            inputs.cpu().numpy(),
            targets.cpu().numpy(),
            scores.double().cpu().numpy(),
            self.task.name,
            trees=settings.steps,
            rate=settings.learning_rate,
            depth=forest.depth,
            least=forest.least,
            seed=stream_seed(seed, "trees"),
            weights=None if weights is None else weights.cpu().numpy(),
        )
        grown = complete_trees(
            booster,
            trees=settings.steps,
            outputs=scores.shape[1],
            depth=forest.depth,
            features=forest.features,
        )
        for name, values in vars(grown).items():
            parts[name][0, used : used + settings.steps] = torch.from_numpy(values).to(vector)

    def _intercept(self, targets: Tensor, factors: Tensor | None) -> Tensor:
        """Return outputs that predict the training targets' mean, or their class frequencies.

        Risks of survival are relative to one another, so that they start from zero.
        With half a sample more of each class; `factors` are the weights of samples, 1 on average.
        """
        outputs = self._forest.intercept.shape[0]
        own = torch.ones(len(targets), device=targets.device) if factors is None else factors
        if self.task.name == "survival":
            return torch.zeros(1, device=targets.device)
        if self.task.name == "regression":
            return (own * targets).mean()[None]
        if self.task.name == "binary":
            share = ((own * targets).sum() + 0.5) / (len(targets) + 1)
            return share.logit()[None]
        counts = torch.bincount(targets.long(), own, minlength=outputs)[:outputs].float() + 0.5
        return (counts / counts.sum()).log()

    @torch.no_grad()
    def _weigh(self, silo: Silo, vector: Tensor) -> None:
        """Choose the weights of a forest's contributors on validation samples, in place."""
        positions = silo.splits["validation"]
        (inputs,), targets = silo.batch(positions)
        factors = silo.factors(positions)
        parts = self.schema.unflatten(vector)
        contributions = torch.func.functional_call(
            _Contributions(self._forest),
            {f"forest.{k}": own for k, own in parts.items()},
            (inputs,),
        )
        with torch.enable_grad():
            found = chosen_weights(
                parts["intercept"].cpu(),
                contributions.cpu(),
                targets.cpu(),
                self.task,
                self._forest.caution,
                None if factors is None else factors.cpu(),
                silo.groups_in("validation"),
            )
        parts["weight"].copy_(found)

    def gradients(self, silo: Silo, request: Gradient, seed: int) -> Gradients:  # noqa: ARG002
        """Refuse: trees have no gradients."""
        raise SettingsError(NO_GRADIENTS)


class _Contributions(torch.nn.Module):
    """The contributions of a forest as a module, to be called with other parameters."""

    def __init__(self, forest: Forest) -> None:
        super().__init__()
        self.forest = forest

    def forward(self, x: Tensor) -> Tensor:
        return self.forest.contributions(x)
