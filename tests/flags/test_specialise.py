"""Faster closures answer exactly as the general operators do, and never cost more steps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import contexts, numbers, scalars, texts, values
from wigwag.errors import RuleError
from wigwag.flags.model import Limits
from wigwag.flags.rules.compile import compile_rule
from wigwag.flags.rules.scope import LargeOperandError

NOW = 1_700_000_000
STEPS = Limits().steps
EQUALITIES, ORDERINGS = ["==", "!=", "===", "!=="], ["<", "<=", ">", ">="]

attributes = st.sampled_from(["email", "tier", "age", "tags", "user", "absent"])
variables = st.one_of(
    attributes.map(lambda name: {"var": name}),
    attributes.map(lambda name: {"var": [name]}),
    st.tuples(attributes, scalars).map(lambda pair: {"var": list(pair)}),
    st.sampled_from(["user.name", "user.a", "tags.0", "user.name.a", "$flagd.flagKey", "$flagd.timestamp"]).map(
        lambda name: {"var": name}
    ),
)
long_texts = st.tuples(texts, st.sampled_from([1, 30, 70, 300, 1_200])).map(lambda pair: pair[0] * pair[1])
constants = st.one_of(scalars, long_texts)
lists = st.lists(st.one_of(scalars, st.lists(numbers, max_size=3)), max_size=4)
large_lists = st.tuples(lists, st.sampled_from([1, 20, 600])).map(lambda pair: pair[0] * pair[1])
data = st.tuples(contexts, st.dictionaries(attributes, st.one_of(long_texts, large_lists, values), max_size=5)).map(
    lambda pair: {**pair[0], **pair[1]}
)
shares = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["on", "off", "red"]), st.one_of(st.integers(-2, 50), variables)).map(list),
        st.tuples(st.one_of(variables, scalars)).map(list),
        st.tuples(variables, scalars).map(list),
        variables,
    ),
    min_size=1,
    max_size=4,
)


def computed(operand: Any) -> Any:
    """Return an expression with the same value that no specialised form recognises."""
    return {"if": [True, operand]}


def outcome(rule: Any, context: dict[str, Any], steps: int | None, **options: Any) -> tuple[Any, int]:
    """Evaluate a rule; return its answer, or that it failed, and how many steps it took."""
    program = compile_rule(rule, "key", **options)
    run = program.run(NOW, lambda: NOW, steps)
    try:
        if steps is None and not program.needs_run:
            try:
                return repr(program.decide(context, None)), 0
            except LargeOperandError:
                pass
        return repr(program.decide(context, run)), (steps or 0) - run.steps
    except RuleError as error:
        return ("too many steps" if run.refused else "failed", str(error).partition(";")[0]), 0


def check(name: str, operands: list[Any], context: dict[str, Any], **options: Any) -> None:
    """Compare an operator with itself applied to an array that is only known at run time."""
    special, general = {name: operands}, {name: computed([computed(operand) for operand in operands])}
    assert outcome(special, context, None, **options)[0] == outcome(general, context, None, **options)[0]
    answer, spent = outcome(special, context, STEPS, **options)
    expected, most = outcome(general, context, STEPS, **options)
    assert answer == expected
    assert spent <= most


@given(st.sampled_from(EQUALITIES + ORDERINGS), variables, constants, data, st.booleans())
def test_a_comparison_with_a_constant(name: str, var: Any, value: Any, context: Any, swapped: bool) -> None:
    check(name, [value, var] if swapped else [var, value], context)


@given(st.sampled_from(EQUALITIES + ORDERINGS), variables, variables, data)
def test_a_comparison_of_two_variables(name: str, first: Any, second: Any, context: Any) -> None:
    check(name, [first, second], context)


@given(st.sampled_from(EQUALITIES + ORDERINGS), scalars, variables, scalars, data)
def test_a_value_between_two_constants(name: str, low: Any, var: Any, high: Any, context: Any) -> None:
    check(name, [low, var, high], context)


@given(constants, variables, data)
def test_a_constant_in_a_variable(value: Any, var: Any, context: Any) -> None:
    check("in", [value, var], context)


@given(variables, st.one_of(lists, st.lists(st.one_of(numbers, texts)), long_texts), data)
def test_a_variable_in_a_constant(var: Any, value: Any, context: Any) -> None:
    check("in", [var, value], context)


@given(st.sampled_from(["starts_with", "ends_with"]), variables, constants, data)
def test_a_start_and_an_end(name: str, var: Any, value: Any, context: Any) -> None:
    check(name, [var, value], context)


@given(st.sampled_from(["!", "!!"]), st.one_of(variables, constants, lists), data)
def test_a_negation(name: str, operand: Any, context: Any) -> None:
    check(name, [operand], context)


@given(st.one_of(variables, constants), st.one_of(variables, constants), data, st.sampled_from([5, 100, 10_000]))
def test_two_texts_joined(first: Any, second: Any, context: Any, longest: int) -> None:
    check("cat", [first, second], context, limits=Limits(string_length=longest))


@given(variables, st.sampled_from(["=", "!=", "<", ">=", "^", "~", "?"]), texts, data)
def test_a_version(var: Any, relation: str, target: str, context: Any) -> None:
    check("sem_ver", [var, relation, target], context)


@given(st.one_of(variables, st.just({"cat": ["a", {"var": "email"}]})), shares, data, st.sampled_from(["v2", "v3"]))
def test_shares_that_are_computed(by: Any, shares: list[Any], context: Any, version: Any) -> None:
    check("fractional", [by, *shares], context, fractional=version)


@given(st.lists(st.one_of(variables, scalars), min_size=1, max_size=6), data)
def test_answers_that_are_constants(operands: list[Any], context: Any) -> None:
    """An `or` of one operand hides that it is constant."""
    hidden = [{"or": [operand]} for operand in operands]
    assert outcome({"if": operands}, context, STEPS) == outcome({"if": hidden}, context, STEPS)


@pytest.mark.parametrize(
    ("rule", "context"),
    [
        ({"in": ["@b.com", {"var": ["email"]}]}, {"email": "a@b.com"}),
        ({"in": ["beta", {"var": "groups"}]}, {"groups": ["alpha", "beta"]}),
        ({"==": [{"var": ["customer"]}, True]}, {"customer": True}),
        ({"==": [{"var": "zip"}, "12345"]}, {"zip": "12345"}),
        ({"<=": [18, {"var": "age"}, 65]}, {"age": 40}),
        ({"<": [18, {"var": "age"}]}, {"age": 40}),
        ({">": [{"var": "a"}, {"var": "b"}]}, {"a": 2, "b": 1}),
        ({"in": [{"var": "age"}, [41, 42]]}, {"age": 42}),
        ({"!": [{"var": "absent"}]}, {}),
        ({">=": [{"var": "$flagd.timestamp"}, 1_600_000_000]}, {}),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_common_form_calls_no_general_operator(rule: Any, context: Any) -> None:
    """Otherwise the property tests above would compare the general operator with itself."""
    ((name, _),) = rule.items()

    def unexpected(values: Any) -> Any:
        raise AssertionError(f"the general operator was called with {values!r}")

    program = compile_rule(rule, "key", overrides={name: unexpected})
    assert program.decide(context, program.run(NOW, lambda: NOW)) is True


def test_a_form_accounts_for_large_data_as_the_general_operator_does() -> None:
    for context in ({"email": "x" * 1_000}, {"email": ["x"] * 50}, {"email": ["x"] * 500}):
        rule = {"in": ["@b.com", {"var": ["email"]}]}
        general = {"in": computed(["@b.com", {"var": "email"}])}
        assert outcome(rule, context, STEPS) == outcome(general, context, STEPS)
        assert outcome(rule, context, STEPS)[1] > 0
