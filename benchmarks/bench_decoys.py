"""How well a silo can tell decoys from models: ``python -m benchmarks.bench_decoys``.

A silo computes some numbers of every model that it is shown. Printed is how well each alone, and a
classifier of all that was trained with other seeds of the data, tells decoys from models: the area
under the ROC curve, 0.5 by chance. The code is public, so an operator can train such a classifier.
"""

import argparse

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold, cross_val_predict
from torch import Tensor

from fedegoists.benefit.decoys import decoy
from fedegoists.benefit.estimator import Inquiry
from fedegoists.benefit.local_models import local_models
from fedegoists.benefit.silo_queries import SiloQueries
from fedegoists.federation import Evaluate, Evaluated, SimulatedFederation
from fedegoists.learning.datasets import load
from fedegoists.learning.model_registry import model_options
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.training.defaults import defaults_for, learn_settings

NUMBERS = ("length", "distance", "explained", "cosine", "spectrum", "kurtosis", "loss")
SEEDS = 6


def numbers_of(
    model: Tensor, others: Tensor, start: Tensor, own: Tensor, schema: ParameterSchema
) -> list[float]:
    """Return all but the loss, in the order of `NUMBERS`."""
    mean = others.mean(0)
    off = model - mean
    span = (others - mean).double().mT
    fit = torch.linalg.lstsq(span, off.double()[:, None], driver="gelsd").solution
    matrices = [part for part in schema.unflatten(off).values() if part.ndim == 2]
    largest = [torch.linalg.svdvals(one) for one in matrices if min(one.shape) > 1]
    values = (
        (model - start).norm(),
        off.norm(),
        ((span @ fit).norm() / off.norm()) ** 2,
        torch.cosine_similarity(model - start, own - start, 0),
        torch.stack([one[0] ** 2 / one.square().sum() for one in largest]).mean(),
        ((off - off.mean()) / off.std()).pow(4).mean(),
    )
    return [float(value) for value in values]


def main() -> None:
    """Print a table for one data set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="synthetic-weak")
    parser.add_argument("--competitors", type=int, default=1)
    wanted = parser.parse_args()
    rng = np.random.default_rng(0)
    generator = torch.Generator().manual_seed(0)
    rows, fake, seeds = [], [], []
    for seed in range(SEEDS):
        data = load(wanted.data, seed=seed)
        network = build_model(defaults_for(data).model, 0, **model_options(data))
        federation = SimulatedFederation(data, network)
        settings = learn_settings(data, "transfer", repeats=1, seed=seed)
        queries = SiloQueries(federation, (federation.participants,))
        trained, starts, _ = local_models(
            Inquiry(queries, settings, lambda *_: None, torch.zeros(0), "")
        )
        models, start = trained[0, 0], starts[0]
        for i, name in enumerate(federation.participants):
            others = rng.permutation([k for k in range(len(models)) if k != i]).tolist()
            known = models[others[wanted.competitors :]]
            decoys = [
                decoy(start, known, federation.schema, generator) for _ in range(wanted.competitors)
            ]
            shown = torch.cat([known, torch.stack(decoys)])
            request = Evaluate(parameters=shown, split="validation")
            reply = federation.call({name: request})[name]
            assert isinstance(reply, Evaluated)
            losses = reply.losses
            found = []
            for place, model in enumerate(shown):
                rest = torch.cat([shown[:place], shown[place + 1 :], models[i : i + 1]])
                numbers = numbers_of(model, rest, start, models[i], federation.schema)
                found.append([*numbers, float(losses[place])])
            table = np.array(found)
            rows.append((table - table.mean(0)) / table.std(0))  # as one silo compares them
            fake += [0] * len(known) + [1] * len(decoys)
            seeds += [seed] * len(shown)
    table = np.concatenate(rows)
    print(f"{wanted.data}: {federation.schema.size} parameters, {sum(fake)} of {len(fake)} decoys")
    for k, what in enumerate(NUMBERS):
        print(f"{what:10} {roc_auc_score(fake, table[:, k]):.2f}")
    forest = RandomForestClassifier(500, random_state=0)
    parts = GroupKFold(SEEDS)
    guesses = cross_val_predict(forest, table, fake, groups=seeds, cv=parts, method="predict_proba")
    print(f"{'together':10} {roc_auc_score(fake, guesses[:, 1]):.2f}")


if __name__ == "__main__":
    main()
