from collections import OrderedDict, defaultdict, namedtuple

import pytest

from sparsejax import tree_util

Point = namedtuple("Point", "x y")
TREES = [
    1,
    (),
    [],
    {},
    None,
    (1, [2, {"b": 3, "a": (4,)}]),
    Point(1, [2]),
    OrderedDict(b=1, a=2),
    defaultdict(list, k=[1]),
]


@pytest.mark.parametrize("tree", TREES)
def test_round_trip(tree):
    leaves, structure = tree_util.tree_flatten(tree)
    assert tree_util.tree_unflatten(structure, leaves) == tree
    assert structure.num_leaves == len(leaves)
    assert hash(structure) == hash(tree_util.tree_structure(tree))


def test_map_and_errors():
    assert tree_util.tree_map(lambda x, y: x + y, {"a": 1}, {"a": 2}) == {"a": 3}
    with pytest.raises(ValueError, match="structure"):
        tree_util.tree_map(lambda x, y: x, [1], (1,))
    with pytest.raises(ValueError, match="too many"):
        tree_util.tree_unflatten(tree_util.tree_structure([1]), [1, 2])
    with pytest.raises(ValueError, match="too few"):
        tree_util.tree_unflatten(tree_util.tree_structure([1, 2]), [1])
