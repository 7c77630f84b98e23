"""The mutants of modules as JSON lines. Runs in the environment of requirements/mutants.txt: `generate.py FILE…`.

The changes are mutmut's, without those of text, of arguments and of assignments (mostly other words in a message, or a
TypeError that the type checker reports too), and with two more: a condition is negated, a result is lost.
"""

import ast
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import libcst as cst
from mutmut.mutation import file_mutation, mutators

_LEFT_OUT = (
    mutators.operator_string,
    mutators.operator_assignment,
    mutators.operator_arg_removal,
    mutators.operator_dict_arguments,
    mutators.operator_lambda,
)
# Those that another operator changes already.
_CHANGED_ELSEWHERE = (cst.Comparison, cst.BooleanOperation, cst.UnaryOperation)


def _negate(node: "cst.If | cst.While | cst.CompIf") -> Iterable[cst.CSTNode]:
    """`if x:` → `if not x:`."""
    if not isinstance(node.test, _CHANGED_ELSEWHERE):
        test = node.test if node.test.lpar else node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        yield node.with_changes(test=cst.UnaryOperation(cst.Not(), test))


def _lose(node: cst.Return) -> Iterable[cst.CSTNode]:
    """`return x` → `return None`; not for what is as empty as None to most callers."""
    value = node.value
    empty = isinstance(value, cst.Tuple | cst.List | cst.Set) and not value.elements
    empty = empty or (isinstance(value, cst.Dict) and not value.elements)
    if (
        value is not None
        and not empty
        and not (isinstance(value, cst.Name) and value.value in {"None", "True", "False"})
    ):
        yield node.with_changes(value=cst.Name("None"))


def mutants(file: str) -> Iterator[dict[str, object]]:
    """Yield the mutants of a module."""
    text = Path(file).read_text()
    functions = list(_functions(ast.parse(text)))
    module, mutations, _, _ = file_mutation.create_mutations(file, text)
    before = text.splitlines()
    seen = set()
    for mutation in mutations:
        if not isinstance(mutation.contained_by_top_level_function, cst.FunctionDef):
            continue
        changed = file_mutation.deep_replace(module, mutation.original_node, mutation.mutated_node)
        assert isinstance(changed, cst.Module)
        source = changed.code
        after = source.splitlines()
        differing = [place for place, (old, new) in enumerate(zip(before, after, strict=False)) if old != new]
        if not differing or source in seen:
            continue
        seen.add(source)
        line = differing[0] + 1
        owner = [function for function in functions if function[1] <= line <= function[3]]
        if not owner:
            continue
        function, first, body, _ = owner[0]
        yield {
            "file": file,
            "line": line,
            "function": function,
            "first": first,
            "was": before[line - 1].strip(),
            "becomes": after[line - 1].strip(),
            "source": source,
            "default": line < body and before[line - 1].strip() != after[line - 1].strip(),
        }


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, int, int, int]]:
    """Yield the functions that are in no other: name, first line, first line of the body, last line."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield prefix + node.name, first, node.body[0].lineno, node.end_lineno or node.lineno
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")


if __name__ == "__main__":
    file_mutation.mutation_operators = [
        *(pair for pair in mutators.mutation_operators if pair[1] not in _LEFT_OUT),
        (cst.If, _negate),
        (cst.While, _negate),
        (cst.CompIf, _negate),
        (cst.Return, _lose),
    ]
    for name in sys.argv[1:]:
        for mutant in mutants(name):
            print(json.dumps(mutant))
