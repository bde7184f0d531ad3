"""Pytrees: properties over random trees, prefixes, paths in errors, registration."""

import dataclasses
from collections import OrderedDict, defaultdict, namedtuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsejax import tree_util
from tests import rotation

Point = namedtuple("Point", "x y")
keys = st.text("abc", max_size=2)
trees = st.recursive(
    st.integers() | st.none(),
    lambda t: (
        st.lists(t, max_size=3)
        | st.lists(t, max_size=3).map(tuple)
        | st.dictionaries(keys, t, max_size=3)
        | st.dictionaries(keys, t, max_size=3).map(lambda d: OrderedDict(reversed(d.items())))
        | st.dictionaries(keys, t, max_size=3).map(lambda d: defaultdict(list, d))
        | st.tuples(t, t).map(lambda p: Point(*p))
    ),
    max_leaves=12,
)


@settings(max_examples=rotation.examples(200), deadline=None)
@given(trees)
def test_random_trees(tree):
    leaves, structure = tree_util.tree_flatten(tree)
    again = tree_util.tree_unflatten(structure, leaves)
    assert again == tree and type(again) is type(tree)
    assert tree_util.tree_structure(again) == structure and hash(tree_util.tree_structure(again)) == hash(structure)
    assert structure.num_leaves == len(leaves) == len(list(tree_util.leaves_with_paths(tree)))
    assert structure.flatten_up_to(tree) == leaves
    assert tree_util.tree_leaves(tree_util.tree_map(str, tree)) == list(map(str, leaves))
    assert structure.unflatten(leaves) == tree


def test_order_of_keys_and_none():
    assert tree_util.tree_leaves({"b": 1, "a": 2}) == [2, 1]
    assert tree_util.tree_leaves(OrderedDict(b=1, a=2)) == [1, 2]
    assert tree_util.tree_leaves([None, 1]) == [1]
    assert tree_util.tree_leaves([None, 1], is_leaf=lambda x: x is None) == [None, 1]
    assert tree_util.tree_leaves([(1, 2)], is_leaf=lambda x: isinstance(x, tuple)) == [(1, 2)]
    assert tree_util.tree_all([1, (True,)]) and not tree_util.tree_all([0])
    assert tree_util.tree_all([])
    with pytest.raises(TypeError, match="sorted"):
        tree_util.tree_flatten({1: 0, "a": 0})


def test_subclasses_are_leaves():
    class Special(dict):
        pass

    special = Special(a=1)
    assert tree_util.tree_leaves([special]) == [special]


def test_other_trees_may_go_deeper():
    assert tree_util.tree_map(lambda x, y: (x, y), {"a": 1}, {"a": [2, 3]}) == {"a": (1, [2, 3])}


@pytest.mark.parametrize(
    ("tree", "other", "where"),
    [
        ({"a": 1, "b": {"c": [3]}}, {"a": 1, "b": {"c": [3, 4]}}, r"tree 1 .* at \['b'\]\['c'\]: expected a list of 1"),
        ([1, (2,)], [1, [2]], r"at \[1\]: expected a tuple .* got a list"),
        (Point(1, (2,)), Point(1, None), r"at \.y: .* got None"),
        ({"a": 1}, {"b": 1}, r"at its root: .*\('a',\).*\('b',\)"),
        ([(1,)], [5], r"at \[0\]: .* got a int"),
        (defaultdict(list, a=[1]), defaultdict(list, a=1), r"at \['a'\]"),
    ],
)
def test_mismatches_name_the_path(tree, other, where):
    with pytest.raises(ValueError, match=where):
        tree_util.tree_map(lambda *xs: xs, tree, other)


def test_number_of_leaves():
    for treedef, leaves, message in (
        (tree_util.tree_structure(0), [1, 2], "too many leaves: 2 given"),
        (tree_util.tree_structure(0), [], "too few leaves: 0 given"),
        (tree_util.tree_structure([0, 0]), [1], "has 2"),
    ):
        with pytest.raises(ValueError, match=message):
            tree_util.tree_unflatten(treedef, leaves)


def test_registered_classes():
    class Box:
        def __init__(self, inside, label):
            self.inside, self.label = inside, label

    tree_util.register_pytree_node(Box, lambda b: ((b.inside,), b.label), lambda label, c: Box(c[0], label))
    made = tree_util.tree_map(lambda x: x + 1, Box([1], "a"))
    assert (made.inside, made.label) == ([2], "a")
    assert tree_util.tree_structure(Box(1, "a")) != tree_util.tree_structure(Box(1, "b"))
    for kind in (Box, list, type(None)):
        with pytest.raises(ValueError, match="already"):
            tree_util.register_pytree_node(kind, None, None)
    with pytest.raises(TypeError, match="classes"):
        tree_util.register_pytree_node("Box", None, None)


def test_dataclasses():
    @tree_util.register_dataclass
    @dataclasses.dataclass
    class Layer:
        weight: object
        name: str = dataclasses.field(default="", metadata={"static": True})
        cached: object = dataclasses.field(default=None, init=False)

    assert tree_util.tree_leaves(Layer([1, 2], "x")) == [1, 2]
    assert list(tree_util.leaves_with_paths(Layer([1], "x"))) == [(".weight[0]", 1)]
    assert tree_util.tree_map(str, Layer(1, "x")) == Layer("1", "x")

    @dataclasses.dataclass
    class Other:
        a: int
        b: int

    for options, message in (
        ({"data_fields": ["a"]}, "b of Other are neither"),
        ({"data_fields": ["a", "c"], "meta_fields": ["b"]}, "c of Other are not among"),
        ({"data_fields": ["a", "b"], "meta_fields": ["b"]}, "b of Other are both"),
    ):
        with pytest.raises(ValueError, match=message):
            tree_util.register_dataclass(Other, **options)
    with pytest.raises(TypeError, match="not a dataclass"):
        tree_util.register_dataclass(int)
