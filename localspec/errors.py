"""Every error a user can cause has a name here, and a text that says what to do next.

Knows nothing of the rest of the package. The command line turns each of these into one line
on stderr and exit code 2; a library user catches `LocalspecError` or a subclass.
"""

__all__ = [
    "AttachmentError",
    "BusyError",
    "CancelledError",
    "CatalogError",
    "ChatTemplateError",
    "ConfigError",
    "ContextOverflowError",
    "ControllerError",
    "DiskSpaceError",
    "DownloadError",
    "DrafterError",
    "EmptyPromptError",
    "EngineError",
    "InvalidOptionError",
    "LocalspecError",
    "ModelFileError",
    "ModelKindError",
    "ModelNotFoundError",
    "NoTokenError",
    "NotEnoughMemoryError",
    "PluginError",
    "ResultsFileError",
    "SavedChatError",
    "StateFileError",
    "TextError",
    "VocabularyMismatchError",
]


class LocalspecError(Exception):
    """Root of all named errors."""


class InvalidOptionError(LocalspecError, ValueError):
    """An option has an unknown name or a value outside its range."""


class EmptyPromptError(LocalspecError, ValueError):
    """The prompt has no tokens, so there is nothing to decode."""


class ContextOverflowError(LocalspecError, ValueError):
    """The prompt has more tokens than the context can hold."""


class ModelNotFoundError(LocalspecError, FileNotFoundError):
    """No file, catalog name or repository answers to the reference."""


class ModelFileError(LocalspecError):
    """The file is not a GGUF, is damaged, or cannot be loaded by this build."""


class ModelKindError(ModelFileError):
    """A valid GGUF that is not a generative language model (projector, adapter, encoder)."""


class NotEnoughMemoryError(LocalspecError):
    """The target needs more memory than is free."""


class VocabularyMismatchError(LocalspecError):
    """Target and draft do not share a vocabulary."""


class TextError(LocalspecError, ValueError):
    """A text to measure on cannot be read, or is too short."""


class CatalogError(LocalspecError):
    """The catalog file is damaged or refers to a name that it lacks."""


class DownloadError(LocalspecError):
    """A file could not be fetched, or what arrived is not what was pinned."""


class DiskSpaceError(DownloadError):
    """There is too little room on the disk for a download or a quantised file."""


class ChatTemplateError(LocalspecError):
    """The model's chat template is missing or cannot render the messages."""


class EngineError(LocalspecError):
    """llama.cpp refused an operation."""


class NoTokenError(EngineError):
    """Grammar, bias and limits leave no token at a position."""


class CancelledError(LocalspecError):
    """cancel() stopped a measurement or a reading; what was there before is kept."""


class BusyError(LocalspecError):
    """A second caller tried to use an object that is generating."""


class AttachmentError(LocalspecError):
    """A file cannot be put into a message."""


class SavedChatError(LocalspecError):
    """A saved chat is missing, damaged, or cannot be written."""


class ConfigError(LocalspecError):
    """The settings file or an environment variable holds something that is not understood."""


class DrafterError(LocalspecError):
    """A drafter that was given to localspec raised, or returned what is no draft."""


class ControllerError(LocalspecError):
    """A controller that was given to localspec raised, or answered what makes no sense."""


class PluginError(LocalspecError):
    """An installed package offers a drafter or controller that cannot be imported."""


class ResultsFileError(LocalspecError):
    """A file of results belongs to another batch: other options, models or prompts."""


class StateFileError(LocalspecError):
    """A saved state is damaged, foreign, or of another model, engine or cache type."""
