"""Tree: a red-black tree in an arena. Nodes are numbers, not addresses, so that the arena can grow; node 0 is nil.

The link array holds four numbers a node: left child, right child, parent, colour. Inserting descends from the root and
restores the balance; draining walks the nodes in order, without a stack, into a sorted list.

Source: Cormen, Leiserson, Rivest, Stein, "Introduction to Algorithms", chapter 13, with left and right as 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.codegen import emit
from sparsejax.jit.codegen.kernel_memory import null, resize
from sparsejax.jit.codegen.workspaces.keys import less, same
from sparsejax.jit.codegen.workspaces.protocol import Listed
from sparsejax.jit.ir import cin

RIGHT, PARENT, COLOUR = 1, 2, 3  # fields of a node; left is 0
BLACK, RED = 0, 1


class Tree(Listed):
    """See `protocol`."""

    def __init__(self, b: Builder, tensor: cin.Tensor, extents: Sequence[Val], op: str | None) -> None:
        super().__init__(b, tensor, extents, op)
        name = tensor.name
        self._nodes = self.entries.make(b, f"{name}_node")
        self._links = b.var(f"{name}_links", null(b))
        self._root = b.var(f"{name}_root", b.i64(0))
        self._last = b.var(f"{name}_last", b.i64(0))
        self._found = b.var(f"{name}_found", b.i64(0))
        state = [*self._nodes.state, self._links]
        b.routine(f"plant_{self._tag}", state, {}, self._plant)

    @property
    def _tag(self) -> str:
        return f"{self.entries.words}_{self.tensor.dtype.itemsize}"

    def owned(self) -> list[Var]:
        return [*super().owned(), *self._nodes.keys, self._nodes.vals, self._links]

    def _plant(self, b: Builder, state: list[Var], args: list[Val]) -> None:
        """Room for the first nodes; nil is black."""
        nodes, links = self.entries.view(state), state[-1]
        self.entries.reserve(b, nodes, b.i64(2))
        resize(b, links, b.get(nodes.room), 32)
        for field in (0, RIGHT, PARENT, COLOUR):
            b.store(b.get(links), b.i64(field), b.i64(0))

    def insert(self, b: Builder, coordinates: Sequence[Val], value: emit.Num) -> None:
        key = self.packing.pack(b, coordinates)
        before = b.var("before", b.get(self._last))
        state = [*self._nodes.state, self._links, self._root, self._last, self._found]
        args = {f"key{w}": word for w, word in enumerate(key)}
        b.routine(f"place_{self._tag}", state, args, self._place)
        nodes, node = self._nodes.at(b), b.get(self._found)

        def fresh() -> None:
            emit.store(b, nodes.vals, node, value)

        def again() -> None:
            emit.store(b, nodes.vals, node, self.entries.combine(b, self.entries.value(b, nodes, node), value))

        b.if_else(b.eq(b.get(before), b.get(self._last)), again, fresh)

    def _place(self, b: Builder, state: list[Var], args: list[Val]) -> None:
        """Find the node of a key, or make one; `found` is its number, `last` counts the nodes."""
        entries, key = self.entries, tuple(args)
        nodes = entries.view(state)
        links, root, last, found = state[-4:]
        at, parent, side = b.var("at", b.get(root)), b.var("parent", b.i64(0)), b.var("side", b.i64(0))
        b.set(found, b.i64(0))
        with b.while_(lambda: b.ne(b.get(at), 0)):
            there = entries.key(b, nodes.at(b), b.get(at))
            b.set(parent, b.get(at))

            def hit() -> None:
                b.set(found, b.get(at))
                b.set(at, b.i64(0))

            def descend(there: tuple[Val, ...] = there) -> None:
                b.set(side, b.convert("zext", less(b, there, key), "i64"))
                b.set(at, self._get(b, b.get(links), b.get(at), b.get(side)))

            b.if_else(same(b, there, key), hit, descend)
        with b.if_(b.eq(b.get(found), 0)):
            b.set(found, b.add(b.get(last), 1))
            node = b.get(found)
            with b.if_(b.compare("sle", b.get(nodes.room), node)):
                entries.reserve(b, nodes, b.add(node, 1))
                resize(b, links, b.get(nodes.room), 32)
            b.set(last, node)
            pointer = b.get(links)
            for field, value in ((0, 0), (RIGHT, 0), (COLOUR, RED)):
                self._set(b, pointer, node, field, b.i64(value))
            self._set(b, pointer, node, PARENT, b.get(parent))
            entries.put_key(b, nodes.at(b), node, key)
            b.if_else(
                b.eq(b.get(parent), 0),
                lambda: b.set(root, node),
                lambda: self._set(b, pointer, b.get(parent), b.get(side), node),
            )
            self._balance(b, pointer, root, node)

    def _balance(self, b: Builder, links: Val, root: Var, node: Val) -> None:
        """No red node keeps a red parent."""
        z = b.var("z", node)

        def parent(x: Val) -> Val:
            return self._get(b, links, x, PARENT)

        with b.while_(lambda: b.eq(self._get(b, links, parent(b.get(z)), COLOUR), RED)):
            p = parent(b.get(z))
            g = parent(p)
            side = b.named("side", b.convert("zext", b.eq(self._get(b, links, g, RIGHT), p), "i64"))
            other = b.named("other", b.sub(b.i64(1), side))
            uncle = self._get(b, links, g, other)

            def recolour(p: Val = p, g: Val = g, uncle: Val = uncle) -> None:
                self._set(b, links, p, COLOUR, b.i64(BLACK))
                self._set(b, links, uncle, COLOUR, b.i64(BLACK))
                self._set(b, links, g, COLOUR, b.i64(RED))
                b.set(z, g)

            def turn(p: Val = p, g: Val = g, side: Val = side, other: Val = other) -> None:
                with b.if_(b.eq(self._get(b, links, p, other), b.get(z))):
                    b.set(z, p)
                    self._rotate(b, links, root, p, side)
                above = parent(b.get(z))
                self._set(b, links, above, COLOUR, b.i64(BLACK))
                self._set(b, links, g, COLOUR, b.i64(RED))
                self._rotate(b, links, root, g, other)

            b.if_else(b.eq(self._get(b, links, uncle, COLOUR), RED), recolour, turn)
        self._set(b, links, b.get(root), COLOUR, b.i64(BLACK))

    def _rotate(self, b: Builder, links: Val, root: Var, x: Val, side: Val) -> None:
        b.routine("rotate", [root], {"links": links, "x": x, "side": side}, self._rotation)

    def _rotation(self, b: Builder, state: list[Var], args: list[Val]) -> None:
        """Node x sinks towards `side`; its child on the other side takes its place."""
        (root,), (links, x, side) = state, args
        other = b.named("other", b.sub(b.i64(1), side))
        y = self._get(b, links, x, other)
        inner = self._get(b, links, y, side)
        self._set(b, links, x, other, inner)
        with b.if_(b.ne(inner, 0)):
            self._set(b, links, inner, PARENT, x)
        above = self._get(b, links, x, PARENT)
        self._set(b, links, y, PARENT, above)

        def inside() -> None:
            place = b.convert("zext", b.eq(self._get(b, links, above, RIGHT), x), "i64")
            self._set(b, links, above, place, y)

        b.if_else(b.eq(above, 0), lambda: b.set(root, y), inside)
        self._set(b, links, y, side, x)
        self._set(b, links, x, PARENT, y)

    def _get(self, b: Builder, links: Val, node: Val, field: Val | int) -> Val:
        return b.load(links, b.add(b.mul(node, 4), field), "i64", "link")

    def _set(self, b: Builder, links: Val, node: Val, field: Val | int, value: Val) -> None:
        b.store(links, b.add(b.mul(node, 4), field), value)

    def drain(self, b: Builder) -> None:
        b.set(self.count, b.get(self._last))
        args = {"links": b.get(self._links), "root": b.get(self._root), "count": b.get(self._last)}
        state = [*self.sorted.state, *self._nodes.state]
        b.routine(f"harvest_{self._tag}", state, args, self._harvest)
        b.set(self._root, b.i64(0))
        b.set(self._last, b.i64(0))

    def _harvest(self, b: Builder, state: list[Var], args: list[Val]) -> None:
        """Copy the nodes out in order: after a node comes the leftmost below its right child, or else the first
        ancestor that it lies left of."""
        entries = self.entries
        half = len(state) // 2
        out, nodes = entries.view(state[:half]), entries.view(state[half:])
        links, root, count = args
        entries.reserve(b, out, count, keep=False)
        source, target = nodes.at(b), out.at(b)
        at, low = b.var("at", b.i64(0)), b.var("low", root)

        def leftmost() -> None:
            with b.while_(lambda: b.ne(b.get(low), 0)):
                b.set(at, b.get(low))
                b.set(low, self._get(b, links, b.get(at), 0))

        leftmost()
        with b.for_(b.i64(0), count, "q") as q:
            entries.move(b, source, b.get(at), target, q)
            right = self._get(b, links, b.get(at), RIGHT)

            def down(right: Val = right) -> None:
                b.set(low, right)
                leftmost()

            def up() -> None:
                came = b.var("came", b.get(at))
                b.set(at, self._get(b, links, b.get(at), PARENT))
                with b.while_(lambda: b.eq(self._get(b, links, b.get(at), RIGHT), b.get(came))):
                    b.set(came, b.get(at))
                    b.set(at, self._get(b, links, b.get(at), PARENT))

            b.if_else(b.ne(right, 0), down, up)

    def reset(self, b: Builder) -> None:
        """Draining has emptied the tree already."""
