"""CIFAR-10 and CIFAR-100, divided among silos as in the FedEgoists paper."""

import os
from functools import partial
from typing import Literal

import numpy as np
from pydantic import Field

from fedegoists.graphs.participants import default_names
from fedegoists.learning import partitioners as divide
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.datasets.cifar_files import CIFAR10, CIFAR100, Images, Release, read_images
from fedegoists.learning.datasets.dataset_registry import DatasetOptions
from fedegoists.learning.datasets.download import download
from fedegoists.learning.datasets.location import dataset_folder
from fedegoists.learning.preparation import Preparation

BLOCK_SIZE = 5
VALIDATION_SHARE = 0.1
POOLED_TEST_SHARE = 0.25
"""The share of a silo's images for its test where all images are one pool, as in PFLlib."""


class CifarOptions(DatasetOptions):
    """Options of CIFAR-10 and CIFAR-100."""

    partition: Literal["pathological", "dirichlet"] = "pathological"
    """Pathological: one class from every five for each participant; dirichlet: random shares of
    every class."""
    beta: float = Field(default=0.5, gt=0)
    """For dirichlet: the smaller, the more the silos differ."""
    participants: int = Field(default=10, ge=1, le=5000)
    """The number of silos."""
    block: int = Field(default=BLOCK_SIZE, ge=1, le=100)
    """For pathological: consecutive classes of which each participant has one."""
    pooled: bool = False
    """Whether training and test images are one pool, of which each silo keeps a quarter of its own
    images for its test, as PFLlib does."""
    download: bool = False
    """Whether to download the images if they are not there."""


def load_cifar(
    release: Release,
    options: CifarOptions,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> SiloedData:
    """Load CIFAR-10 or CIFAR-100 and divide it among silos, see `siloed`.

    Parameters
    ----------
    data_dir : path, optional
        The folder with a sub-folder ``cifar10`` or ``cifar100``; by default that of the
        environment variable.
    """
    folder = dataset_folder(release.name, data_dir, release.needs)
    archive = folder / release.archive
    forms = (folder / release.folder, archive, folder / release.train.pictures[0])
    if options.download and not any(form.exists() for form in forms):
        download(release.url, release.sha256, archive)
    return siloed(release, read_images(release, folder.resolve()), options, seed=seed)


load_cifar10 = partial(load_cifar, CIFAR10)
load_cifar100 = partial(load_cifar, CIFAR100)


def siloed(release: Release, images: Images, options: CifarOptions, *, seed: int = 0) -> SiloedData:
    """Divide images among silos called v0, v1 and so on.

    Pathological: every silo has one class from each block of five consecutive ones (two classes in
    CIFAR-10, twenty in CIFAR-100) and as many images as the others. Dirichlet: random shares of
    every class, with at least ten images for every silo.

    Each silo's share of the training images is split 90/10 by class into training and validation.
    A silo is tested on official test images in its own class mix, as many as there are; two silos
    may share test images. Where images are pooled, official test images are divided like all
    others, and each silo is tested on a quarter of its own, by class.
    """
    # Separate random streams: a change in one step leaves the draws of the others alone.
    division, split, test = divide.seeded(seed).spawn(3)
    divided = len(images.labels) if options.pooled else images.train_size
    train_labels = images.labels[:divided]
    count = options.participants
    if options.partition == "pathological":
        blocks = divide.consecutive_blocks(release.classes, options.block)
        shares = divide.pathological(train_labels, count, blocks, division)
        how = f"one class from each block of {options.block} for each silo"
    else:
        shares = divide.dirichlet(train_labels, count, options.beta, division)
        how = f"shares of each class from a Dirichlet distribution with beta {options.beta:g}"
    if options.pooled:
        pairs = [
            divide.train_validation(own, train_labels, POOLED_TEST_SHARE, test) for own in shares
        ]
        own_tests = "each silo is tested on a quarter of its own images"
    else:
        mixes = [np.bincount(train_labels[own], minlength=release.classes) for own in shares]
        drawn = divide.matched_test(mixes, images.labels[divided:], test)
        pairs = [(own, divided + places) for own, places in zip(shares, drawn, strict=True)]
        own_tests = "each silo is tested on official test images in its own class mix"
    silos = []
    for name, (own, tested) in zip(default_names(count), pairs, strict=True):
        train, validation = divide.train_validation(own, train_labels, VALIDATION_SHARE, split)
        silos.append(SiloIndices(name, train, validation, tested))
    used = sum(len(share) for share in shares)
    half = np.full((count, 3), 127.5)  # the federation turns bytes into numbers around zero
    return SiloedData(
        release.name,
        "classification",
        Samples((images.pixels,), images.labels),
        tuple(silos),
        release.classes,
        f"Tell {release.classes} classes of small colour images apart.",
        (
            how,
            f"{used:,} of {divided:,} {'' if options.pooled else 'training '}images are used",
            own_tests,
        ),
        preparation=(
            Preparation("pixels", ("red", "green", "blue"), half, 1 / half, half + np.nan),
        ),
    )
