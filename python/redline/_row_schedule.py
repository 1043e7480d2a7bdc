"""Decides which actor generates which row of a table. Queues are balanced by predicted cost, which is corrected by measured cost.

Rows are divided before they start, and those that have not started move when an actor runs out of them (after DySkew, adaptive
redistribution of skewed rows). No part of Ray is needed here; times are passed in, so that tests run on a simulated clock.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Sequence


@dataclasses.dataclass(frozen=True)
class Row:
    """A row that is to be generated. ``length``: characters of the prompt; ``limit``: its max_tokens, 0 if there is none."""

    index: int
    length: int
    limit: int = 0


class CostModel:
    """Predicts the cost of a row in decoding steps, from the length of its prompt and its limit of tokens.

    The output is a share of the limit, measured by rows of similar prompt length; a token of the prompt costs a part of a decoded one.
    Both begin as guesses, which finished rows replace.
    """

    _PRIOR_ROWS = 4.0
    _NO_LIMIT = 256

    def __init__(self) -> None:
        self._shares: dict[int, list[float]] = {}  # by log2 of the prompt's length: rows, sum of their shares
        self._all = [1.0, 1.0]
        self._characters, self._prompt_tokens, self._prefill_ms = 4.0, 1.0, 0.0
        self._tokens, self._decode_ms = 0.0, 0.0

    def predict(self, row: Row) -> float:
        """Returns the predicted cost of a whole row, at least 1."""
        rows, total = self._shares.get(self._bucket(row), (0.0, 0.0))
        share = (total + self._PRIOR_ROWS * self._all[1] / self._all[0]) / (rows + self._PRIOR_ROWS)
        prompt = row.length * self._prompt_tokens / self._characters
        return max(1.0, share * (row.limit or self._NO_LIMIT) + self.prompt_weight * prompt)

    @property
    def prompt_weight(self) -> float:
        """The cost of a prompt token, relative to that of a generated one."""
        if not (self._prefill_ms > 0 and self._decode_ms > 0 and self._tokens > 0):
            return 0.1
        return min(max(self._prefill_ms / self._prompt_tokens * self._tokens / self._decode_ms, 0.001), 10.0)

    def seen(self, row: Row, prompt_tokens: int, tokens: int, prefill_ms: float = 0.0, decode_ms: float = 0.0) -> None:
        """Updates the predictions with a finished row."""
        share = tokens / (row.limit or self._NO_LIMIT)
        bucket = self._shares.setdefault(self._bucket(row), [0.0, 0.0])
        for sums in (bucket, self._all):
            sums[0] += 1
            sums[1] += share
        self._characters += row.length
        self._prompt_tokens += prompt_tokens
        self._prefill_ms += prefill_ms
        self._tokens += tokens
        self._decode_ms += decode_ms

    @staticmethod
    def _bucket(row: Row) -> int:
        return int(math.log2(row.length + 1))


@dataclasses.dataclass
class _Actor:
    queue: list[Row]                                                         # longest first
    running: dict[int, tuple[Row, float]] = dataclasses.field(default_factory=dict)  # by index: the row, its predicted cost
    done: float = 0.0                                                        # cost of its finished rows
    begin: float | None = None                                               # when it took its first row

    def running_cost(self) -> float:
        """Returns the remaining cost of the rows in progress, estimated as half of each."""
        return sum(cost for _, cost in self.running.values()) / 2


class RowSchedule:
    """Gives rows to actors that ask for one.

    >>> schedule = RowSchedule([Row(i, 10, limit) for i, limit in enumerate([100, 90, 1, 1, 1])], ["a", "b"])
    >>> schedule.take("a").index, schedule.take("b").index
    (0, 1)
    """

    def __init__(self, rows: Sequence[Row], actors: Sequence[Hashable] = ()) -> None:
        self.costs = CostModel()
        self.moved = 0        # rows that left the queue of one actor for another
        self.unfinished = len(rows)
        self._lost: list[Row] = []  # rows without an actor
        self._actors: dict[Hashable, _Actor] = {actor: _Actor([]) for actor in actors}
        if actors:
            self._divide(rows)
        else:
            self._lost = list(rows)

    def _divide(self, rows: Sequence[Row]) -> None:
        """Gives each actor consecutive rows of equal predicted cost: neighbouring rows often share the beginning of their prompts."""
        actors = list(self._actors.values())
        costs = [self.costs.predict(row) for row in rows]
        share, seen = sum(costs) / len(actors), 0.0
        for row, cost in zip(rows, costs):
            actors[min(int((seen + cost / 2) / share), len(actors) - 1) if share else 0].queue.append(row)
            seen += cost
        for actor in actors:
            self._sort(actor.queue)

    def _sort(self, queue: list[Row]) -> None:
        queue.sort(key=lambda row: (-self.costs.predict(row), row.index))

    def add(self, name: Hashable) -> None:
        """Adds an actor, which takes rows of the others."""
        self._actors[name] = _Actor([])

    def remove(self, name: Hashable) -> list[Row]:
        """Removes an actor; its rows wait for the others. Returns the rows that it was generating."""
        gone = self._actors.pop(name)
        running = [row for row, _ in gone.running.values()]
        self._lost = running + gone.queue + self._lost
        return running

    def give_up(self, row: Row) -> None:
        """Drops a row, so that no actor takes it again."""
        self._lost.remove(row)
        self.unfinished -= 1

    def queued(self, name: Hashable) -> int:
        """Returns the number of rows that wait for this actor."""
        return len(self._actors[name].queue)

    def take(self, name: Hashable, now: float = 0.0) -> Row | None:
        """Returns the next row for an actor. None: there is none, or another actor will finish it earlier."""
        actor = self._actors[name]
        if not actor.queue:
            if self._lost:
                actor.queue.append(self._lost.pop(0))
            else:
                self._move_to(name, now)
        if not actor.queue:
            return None
        row = actor.queue.pop(0)
        actor.running[row.index] = row, self.costs.predict(row)
        if actor.begin is None:
            actor.begin = now
        return row

    def finish(self, name: Hashable, row: Row, prompt_tokens: int, tokens: int, prefill_ms: float = 0.0,
               decode_ms: float = 0.0) -> None:
        """Records that a row is done."""
        self.costs.seen(row, prompt_tokens, tokens, prefill_ms, decode_ms)
        actor = self._actors[name]
        del actor.running[row.index]
        actor.done += tokens + self.costs.prompt_weight * prompt_tokens
        self.unfinished -= 1

    def _speed(self, actor: _Actor, now: float) -> float:
        """Returns the cost per second of an actor; 0: nothing is known yet."""
        return actor.done / (now - actor.begin) if actor.begin is not None and now > actor.begin else 0.0

    def _move_to(self, name: Hashable, now: float) -> None:
        """Moves rows that have not started from the actor that would end last, so that both end at the same time."""
        thief = self._actors[name]
        speeds = {key: self._speed(actor, now) for key, actor in self._actors.items()}
        known = [speed for speed in speeds.values() if speed > 0]
        usual = sum(known) / len(known) if known else 1.0
        speeds = {key: speed or usual for key, speed in speeds.items()}
        costs = {key: [self.costs.predict(row) for row in actor.queue] for key, actor in self._actors.items()}
        left = {key: sum(costs[key]) + actor.running_cost() for key, actor in self._actors.items()}
        victims = [key for key, actor in self._actors.items() if actor.queue and key != name]
        if not victims:
            return
        victim = max(victims, key=lambda key: left[key] / speeds[key])
        fast, slow = speeds[name], speeds[victim]
        amount = (left[victim] * fast - left[name] * slow) / (fast + slow)
        queue, kept, taken = self._actors[victim].queue, [], []
        for row, cost in zip(queue, costs[victim]):
            if cost <= amount:
                amount -= cost
                taken.append(row)
            else:
                kept.append(row)
        if not taken and not thief.running:
            taken.append(kept.pop())  # an idle actor is worse than an unequal end
        self._actors[victim].queue = kept
        self._sort(taken)
        thief.queue = taken
        self.moved += len(taken)
