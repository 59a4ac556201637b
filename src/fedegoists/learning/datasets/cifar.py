"""CIFAR-10 and CIFAR-100, divided among silos as the FedEgoists paper does."""

import os

import numpy as np

from fedegoists.graphs.participants import default_names
from fedegoists.learning import partitioners as divide
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.datasets.cifar_files import CIFAR10, CIFAR100, Images, Release, read_images
from fedegoists.learning.datasets.download import download as fetch
from fedegoists.learning.datasets.info import DatasetInfo, Option
from fedegoists.learning.datasets.location import dataset_folder
from fedegoists.learning.options import generator, one_of, whole_number
from fedegoists.learning.preparation import Preparation

__all__ = ["CIFAR10_INFO", "CIFAR100_INFO", "load_cifar", "siloed"]

BLOCK_SIZE = 5
VALIDATION_SHARE = 0.1
MOST_PARTICIPANTS = 5000


def _info(release: Release, summary: str) -> DatasetInfo:
    return DatasetInfo(
        release.name,
        summary,
        (
            Option(
                "partition",
                "pathological",
                "'pathological': one class from every five for each participant; 'dirichlet': "
                "random shares of every class",
            ),
            Option("beta", 0.5, "for dirichlet: the smaller, the more the silos differ"),
            Option("participants", 10, "the number of silos"),
            Option("download", False, "whether to fetch the images if they are not there"),
        ),
        "none stated by its authors",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
    )


CIFAR10_INFO = _info(CIFAR10, "60,000 colour images of 32 × 32 points in 10 classes")
CIFAR100_INFO = _info(CIFAR100, "60,000 colour images of 32 × 32 points in 100 classes")


def load_cifar(
    release: Release,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
    partition: str = "pathological",
    beta: float = 0.5,
    participants: int = 10,
    download: bool = False,
) -> SiloedData:
    """Load CIFAR-10 or CIFAR-100 and divide it among silos.

    Parameters
    ----------
    release : Release
        `CIFAR10` or `CIFAR100`.
    data_dir : path, optional
        The folder with a sub-folder ``cifar10`` or ``cifar100``; by default that of the
        environment variable.
    seed : int
        Decides which images belong to whom.
    partition, beta, participants
        See `siloed`.
    download : bool
        Whether to fetch the official archive into that folder if no images are there.
    """
    one_of("partition", partition, ("pathological", "dirichlet"))  # before reading takes seconds
    whole_number("participants", participants, 1, MOST_PARTICIPANTS)
    folder = dataset_folder(release.name, data_dir, release.needs)
    archive = folder / release.archive
    forms = (folder / release.folder, archive, folder / release.train_pictures.names[0])
    if download and not any(form.exists() for form in forms):
        fetch(release.url, release.sha256, archive)
    images = read_images(release, folder.resolve())
    return siloed(
        release,
        images,
        seed=seed,
        partition=partition,
        beta=beta,
        participants=participants,
    )


def siloed(
    release: Release,
    images: Images,
    *,
    seed: int = 0,
    partition: str = "pathological",
    beta: float = 0.5,
    participants: int = 10,
) -> SiloedData:
    """Divide images among silos.

    The training images are divided, and each silo's share is split 90/10 by class into training and
    validation. A silo is tested on those official test images that have its own class mix, as many
    as there are; two silos may share test images.

    Parameters
    ----------
    partition : {"pathological", "dirichlet"}
        Pathological: every silo has one class from each block of five consecutive ones (two classes
        in CIFAR-10, twenty in CIFAR-100) and as many images as the others. Dirichlet: random shares
        of every class, with at least ten images for everybody.
    beta : float
        Of the Dirichlet distribution.
    participants : int
        The number of silos; they are called v0, v1 and so on.
    """
    one_of("partition", partition, ("pathological", "dirichlet"))
    # Separate streams: a change in one step leaves the draws of the others alone.
    division, split, test = generator(seed).spawn(3)
    train_labels = images.labels[: images.train_size]
    test_labels = images.labels[images.train_size :]
    if partition == "pathological":
        blocks = divide.consecutive_blocks(release.classes, BLOCK_SIZE)
        shares = divide.pathological(train_labels, participants, blocks, division)
        how = f"one class from each block of {BLOCK_SIZE} for each silo"
    else:
        shares = divide.dirichlet(train_labels, participants, beta, division)
        how = f"shares of each class from a Dirichlet distribution with beta {beta:g}"
    mixes = [np.bincount(train_labels[share], minlength=release.classes) for share in shares]
    tests = divide.matched_test(mixes, test_labels, test)
    names = default_names(participants)
    silos = []
    for name, share, positions in zip(names, shares, tests, strict=True):
        train, validation = divide.train_validation(share, train_labels, VALIDATION_SHARE, split)
        silos.append(SiloIndices(name, train, validation, images.train_size + positions))
    used = sum(len(share) for share in shares)
    return SiloedData(
        release.name,
        "classification",
        Samples((images.pixels,), images.labels),
        tuple(silos),
        release.classes,
        f"Tell {release.classes} classes of small colour images apart.",
        (
            how,
            f"{used:,} of {len(train_labels):,} training images are used",
            "each silo is tested on official test images in its own class mix",
        ),
        preparation=(_bytes_of_images(len(silos)),),
    )


def _bytes_of_images(silos: int) -> Preparation:
    """Return how the federation turns bytes into numbers around zero."""
    half = np.full((silos, 3), 127.5)
    return Preparation("pixels", ("red", "green", "blue"), half, 1 / half, half + np.nan)
