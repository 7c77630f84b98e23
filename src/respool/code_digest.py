"""What a function's results depend on: its own code, and the code and data that it refers to.

The walk follows global names, closures and imports, from function to function, within the code of the function's
author: the package of its module or, for a module without one, the modules in its folder. The standard library and
installed packages are left out, and so is state that exists only in a running process.
"""

import dis
import functools
import hashlib
import importlib.util
import inspect
import io
import sys
import sysconfig
import textwrap
import tokenize
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from respool.identity import canonical_text

_DIGITS = 16  # of a digest, in hexadecimal


@dataclass
class CodeDependencies:
    """The code and values that a walk has reached.

    Attributes:
        code: The digest of each function, class and constant, by its whole name.
        values: The values of closures and of arguments of partial functions, as text, by the names of both.
    """

    code: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)


def collect_code(*roots: object) -> CodeDependencies:
    """Return what functions, or other callable objects, depend on."""
    dependencies = CodeDependencies()
    for root in roots:
        _CodeWalk(dependencies, _scope(module_of(root))).visit(root, "")
    return dependencies


def digest(text: str) -> str:
    """Return a short digest of a text."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]


class _CodeWalk:
    def __init__(self, dependencies: CodeDependencies, own: Callable[[str], bool]) -> None:
        self._dependencies = dependencies
        self._own = own
        self._seen: dict[int, object] = {}  # kept, so that no other object gets the same id meanwhile

    def visit(self, value: object, name: str) -> None:
        """Add a value and what it depends on; `name` is its name where it is used."""
        text = canonical_text(value)
        if text is not None:
            self._dependencies.values[name] = text
            self._classes(value)
        elif id(value) not in self._seen:
            self._seen[id(value)] = value
            self._enter(value, name)

    def _enter(self, value: object, name: str) -> None:
        if isinstance(value, functools.partial):
            self.visit(value.func, name)
            called = _name(value.func)
            for position, item in enumerate(value.args):
                self.visit(item, f"{called}:{position}")
            for keyword, item in sorted(value.keywords.items()):
                self.visit(item, f"{called}:{keyword}")
        elif isinstance(value, types.MethodType):
            self.visit(value.__func__, name)
            self.visit(value.__self__, name)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, list | tuple):
            for position, item in enumerate(value):
                self.visit(item, f"{name}:{position}")
        elif isinstance(value, set | frozenset):
            for item in value:
                if canonical_text(item) is None:
                    self.visit(item, name)
        elif isinstance(value, dict):
            for key, item in value.items():
                self.visit(item, f"{name}:{canonical_text(key) or type(key).__qualname__}")
        elif not isinstance(value, types.ModuleType):
            self._object(value, name)

    def _classes(self, data: object) -> None:
        """Add the classes of plain data: their methods are code."""
        if isinstance(data, list | tuple | set | frozenset):
            for item in data:
                self._classes(item)
        elif isinstance(data, dict):
            self._classes(list(data.values()))
        elif isinstance(data, Enum):
            self.visit(type(data), "")
        elif is_dataclass(data):
            self.visit(type(data), "")
            self._classes([getattr(data, item.name) for item in fields(data)])

    def _function(self, function: types.FunctionType) -> None:
        inner = getattr(function, "__wrapped__", None)  # a decorator's function names the function in it
        if inner is not None:
            self.visit(inner, _name(function))
        if self._own(function.__globals__.get("__name__", "")):
            self._add(_name(function), _digest_of(function))
            self._references(function)

    def _class(self, cls: type) -> None:
        # The wording of an error changes no result.
        if not self._own(cls.__module__) or issubclass(cls, BaseException):
            return
        members = {name: _function_of(member) for name, member in sorted(vars(cls).items())}
        functions = {name: member for name, member in members.items() if isinstance(member, types.FunctionType)}
        own = [member for name, member in functions.items() if not (is_dataclass(cls) and _is_generated(name, member))]
        data = [
            f"{name}={canonical_text(member)}"
            for name, member in members.items()
            if not _is_special(name) and canonical_text(member)
        ]
        source = _source(cls)
        self._add(_name(cls), digest("\n".join([source, *data])) if source else _together(map(_digest_of, own)))
        for base in cls.__bases__:
            self.visit(base, "")
        for function in own:
            self._references(function)
        for name, member in members.items():
            if isinstance(member, type) and not _is_special(name):
                self.visit(member, "")

    def _object(self, value: object, name: str) -> None:
        """Add an object: its class and attributes when the class is the author's, otherwise its class's name."""
        cls = type(value)
        if not self._own(cls.__module__):
            self._dependencies.values[name] = f"a {cls.__module__}.{cls.__qualname__}"
            return
        self.visit(cls, "")
        for key, item in sorted(getattr(value, "__dict__", {}).items()):
            self.visit(item, f"{name or _name(cls)}:{key}")

    def _references(self, function: types.FunctionType) -> None:
        name = _name(function)
        for cell_name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # an empty one
                if cell_name != "__class__":
                    self.visit(cell.cell_contents, f"{name}:{cell_name}")
        for position, default in enumerate(_defaults(function)):
            if canonical_text(default) is None:
                self.visit(default, f"{name}:default {position}")
        package = str(function.__globals__.get("__package__") or "")
        for code in _codes(function.__code__):
            for key in code.co_names:
                if key in function.__globals__ and not _is_special(key):
                    self._global(function.__globals__, key, code)
            for module in _imports(code, package):
                self._module(module, code)

    def _global(self, names: dict[str, Any], key: str, code: types.CodeType) -> None:
        value = names[key]
        if isinstance(value, types.ModuleType):
            self._module(value.__name__, code)
        elif self._own(names.get("__name__", "")):
            self._named(f"{names['__name__']}.{key}", value)

    def _module(self, name: str, code: types.CodeType) -> None:
        """Add what a function may use of a module: all of its names that are among the function's."""
        if not self._own(name):
            return
        try:
            module = importlib.import_module(name)  # as the function itself would
        except Exception:
            return
        for key in sorted({used for used in code.co_names if not _is_special(used)} & set(vars(module))):
            value = vars(module)[key]
            if isinstance(value, types.ModuleType):
                if value.__name__ != name:
                    self._module(value.__name__, code)
            else:
                self._named(f"{name}.{key}", value)

    def _named(self, name: str, value: object) -> None:
        """Add the value of a module's name. Constants are added by their digest: they are code as well."""
        text = canonical_text(value)
        if text is not None:
            self._add(name, digest(text))
            self._classes(value)
        else:
            self.visit(value, name)

    def _add(self, name: str, new: str) -> None:
        before = self._dependencies.code.get(name, new)  # two lambdas may have one name
        self._dependencies.code[name] = new if before == new else _together((before, new))


def _scope(module: str) -> Callable[[str], bool]:
    """Return a function that checks whether a module has the same author as a given module."""
    top = module.partition(".")[0]
    folder = author_folder(top)

    def own(other: str) -> bool:
        name = other.partition(".")[0]
        return bool(name) and (name == top or (folder is not None and author_folder(name) == folder))

    return own


def author_folder(top: str) -> Path | None:
    """Return where a module or package of the top level is, when that is a folder of its author and not of Python's."""
    file = getattr(sys.modules.get(top), "__file__", None)
    if not file:
        return None
    path = Path(file).absolute()
    is_package = hasattr(sys.modules[top], "__path__")
    folder = path.parent.parent if is_package else path.parent
    installed = {
        Path(folder_name) for key, folder_name in sysconfig.get_paths().items() if key.endswith(("lib", "stdlib"))
    }
    return None if folder in installed or {"site-packages", "dist-packages"} & set(folder.parts) else folder


def module_of(value: object) -> str:
    """Return the name of the module that a function, a class or an object's class is from."""
    if isinstance(value, functools.partial):
        return module_of(value.func)
    if isinstance(value, types.MethodType):
        return module_of(value.__func__)
    if isinstance(value, types.FunctionType):
        return str(inspect.unwrap(value).__globals__.get("__name__", ""))
    return value.__module__ if isinstance(value, type) else type(value).__module__


def _name(value: Any) -> str:
    qualified = str(getattr(value, "__qualname__", type(value).__qualname__)).replace("<locals>.", "")
    return f"{module_of(value)}.{qualified}"


def _function_of(member: object) -> object:
    """Return the function behind a member of a class."""
    if isinstance(member, staticmethod | classmethod):
        return member.__func__
    if isinstance(member, property):
        return member.fget
    if isinstance(member, functools.cached_property):
        return member.func
    return member


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a function's code, and the code of the functions, lambdas and classes in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _imports(code: types.CodeType, package: str) -> Iterator[str]:
    """Yield the modules that a function imports in its body."""
    steps = list(dis.get_instructions(code))
    for at, step in enumerate(steps):
        if step.opname != "IMPORT_NAME" or at < 2:
            continue
        name, level, names = str(step.argval), steps[at - 2].argval, steps[at - 1].argval
        if level:
            with suppress(ImportError, ValueError):
                name = importlib.util.resolve_name("." * int(level) + name, package)
        yield name
        # `from package import module`
        yield from (f"{name}.{imported}" for imported in names or () if f"{name}.{imported}" in sys.modules)


def _source(value: Any) -> str | None:
    """Return the source without comments, empty lines and indentation; None when it is not available."""
    try:
        text = textwrap.dedent(inspect.getsource(value))
    except (OSError, TypeError, SyntaxError, IndentationError):
        return None
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):  # a part of a statement, as a lambda's is
        return text.strip()
    lines = text.splitlines()
    empty = set()
    for token in tokens:
        row, column = token.start
        if token.type == tokenize.COMMENT:
            lines[row - 1] = lines[row - 1][:column].rstrip()
        if token.type == tokenize.NL and not lines[row - 1].strip():
            empty.add(row - 1)
    return "\n".join(line for row, line in enumerate(lines) if row not in empty)


def _digest_of(function: types.FunctionType) -> str:
    """Return the digest of a function's source and defaults, or else of its compiled code."""
    source = _source(function)
    if source is None:
        return _compiled(function.__code__)
    return digest(
        "\n".join([source, *(text for default in _defaults(function) if (text := canonical_text(default)) is not None)])
    )


def _compiled(code: types.CodeType) -> str:
    """Return the digest of compiled code, which is another in each version of Python."""
    parts = [code.co_code.hex(), *code.co_names, *code.co_varnames]
    parts += [
        _compiled(constant) if isinstance(constant, types.CodeType) else str(canonical_text(constant))
        for constant in code.co_consts
    ]
    return f"python{sys.version_info[0]}.{sys.version_info[1]}:{digest(chr(10).join(parts))}"


def _defaults(function: types.FunctionType) -> list[object]:
    named = sorted((function.__kwdefaults__ or {}).items())
    return [*(function.__defaults__ or ()), *(default for _, default in named)]


def _together(digests: Iterable[str]) -> str:
    return digest("\n".join(sorted(digests)))


def _is_generated(name: str, function: types.FunctionType) -> bool:
    """Return whether a dataclass wrote a function for itself: it follows from the source of the class."""
    return _is_special(name) and inspect.unwrap(function).__code__.co_filename == "<string>"


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
