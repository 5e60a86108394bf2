"""Every category has one colour, which everybody can see and hardly anybody can take for another."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from k25trace.accounting import MEMCPY, MEMSET, OPAQUE, WALL_ROWS
from k25trace.gaps import CAUSES
from k25trace.palette import (
    CAUSE_COLOURS,
    COLLECTIVE_COLOURS,
    COLOURS,
    DARK,
    LIGHT,
    PARTS,
    TRANSFER,
    WAIT,
    colour,
    contrast,
    ink,
    wall_row,
)
from k25trace.taxonomy import ALL_CATEGORIES

# Machado, Oliveira, Fernandes 2009, severity 1.0.
SIGHT = {
    "full": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def lab(linear: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = (
        np.cbrt(v) if v > (6 / 29) ** 3 else v / (3 * (6 / 29) ** 2) + 4 / 29
        for v in to_xyz @ linear / np.array([0.95047, 1, 1.08883])
    )
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def linear(hexed: str) -> np.ndarray:
    levels = [int(hexed[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in levels])


def seen(hexed: str, eye: str) -> np.ndarray:
    return lab(np.clip(np.array(SIGHT[eye]) @ linear(hexed), 0, 1))


def test_every_category_and_wall_row_has_a_colour_and_no_two_share_one():
    assert set(COLOURS) == {*PARTS}
    assert PARTS[: len(ALL_CATEGORIES)] == ALL_CATEGORIES
    assert len(set(COLOURS.values())) == len(COLOURS)
    assert [colour(row) for row in WALL_ROWS[: len(ALL_CATEGORIES)]] == [COLOURS[c] for c in ALL_CATEGORIES]
    assert tuple(wall_row(c) for c in ALL_CATEGORIES) == WALL_ROWS[: len(ALL_CATEGORIES)]


@pytest.mark.parametrize("eye", SIGHT)
def test_no_two_categories_look_alike(eye):
    compared = {n: c for n, c in COLOURS.items() if n in ALL_CATEGORIES or n in {MEMCPY, MEMSET, OPAQUE}}
    looks = {n: seen(c, eye) for n, c in compared.items()}
    differences = {(a, b): np.linalg.norm(looks[a] - looks[b]) for a, b in itertools.combinations(looks, 2)}
    assert min(differences.values()) >= 9, min(differences, key=differences.get)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_and_texts_stand_out(theme):
    assert {n: c for n, c in COLOURS.items() if contrast(c, theme.background) < 3} == {}
    for text in (theme.text, theme.muted, theme.accent):
        assert contrast(text, theme.background) >= 4.5
        assert contrast(text, theme.panel) >= 4.5
    assert {n: c for n, c in COLOURS.items() if contrast(ink(c), c) < 4.5} == {}


OF_CAUSES = CAUSE_COLOURS | {TRANSFER: COLLECTIVE_COLOURS[TRANSFER]}


def test_every_cause_of_a_gap_has_a_colour_that_stands_out():
    assert set(CAUSE_COLOURS) == set(CAUSES)
    for theme in (LIGHT, DARK):
        assert {n: c for n, c in OF_CAUSES.items() if contrast(c, theme.background) < 3} == {}
    assert {n: c for n, c in OF_CAUSES.items() if contrast(ink(c), c) < 4.5} == {}


@pytest.mark.parametrize("eye", SIGHT)
def test_no_two_causes_look_alike_and_transfer_is_no_wait(eye):
    def differences(pairs):
        return {(a, b): np.linalg.norm(seen(a, eye) - seen(b, eye)) for a, b in pairs}

    causes = differences(itertools.combinations(OF_CAUSES.values(), 2))
    assert min(causes.values()) >= 9, min(causes, key=causes.get)
    assert min(differences([(COLOURS[WAIT], COLLECTIVE_COLOURS[TRANSFER])]).values()) >= 25


def test_no_cause_has_the_colour_of_a_category_and_a_wait_has_one_everywhere():
    assert {WAIT: COLOURS[WAIT], TRANSFER: OF_CAUSES[TRANSFER]} == COLLECTIVE_COLOURS
    for eye, least in (("full", 10), *((eye, 4.5) for eye in SIGHT)):
        near = {
            (cause, name): distance
            for (cause, one), (name, other) in itertools.product(OF_CAUSES.items(), COLOURS.items())
            if (distance := np.linalg.norm(seen(one, eye) - seen(other, eye))) < least
        }
        assert near == {}


def test_contrast_is_that_of_the_guidelines():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
