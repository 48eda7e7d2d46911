"""Below Python 3.12 pydantic takes TypedDict from typing_extensions only; NeMo RL imports it from typing."""

import typing

import typing_extensions

typing.TypedDict = typing_extensions.TypedDict
