"""What an object store's refusal means, and what to do about it: by the code of its answer, never by its message."""

from respool.errors import StoreError
from respool.locations import store_of
from respool.storage.object_store import current_s3

_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or access_key and secret_key in the [s3] table of respool.toml"
_REGION = "Name its region with AWS_REGION, or with region in the [s3] table of respool.toml."
_REDIRECT = ("the bucket {bucket} is in another region", _REGION)
_DENIED = (
    "this account lacks a permission",
    "Give it permission to list the bucket {bucket}, and to read, write and delete its objects.",
)
_ANSWERS = {
    "NoSuchBucket": ("the bucket {bucket} does not exist", "Correct the URL, or create the bucket."),
    "InvalidBucketName": ("a bucket cannot be named {bucket}", "Correct the URL."),
    "InvalidAccessKeyId": ("the store does not know the access key", f"Correct {_KEYS}."),
    "SignatureDoesNotMatch": ("the secret key is wrong", f"Correct {_KEYS}."),
    "ExpiredToken": ("the session token has expired", "Renew AWS_SESSION_TOKEN and its keys."),
    "InvalidToken": ("the session token is wrong", "Renew AWS_SESSION_TOKEN and its keys, or remove it."),
    "RequestTimeTooSkewed": ("the clock of this machine differs from the store's", "Set the clock."),
    "AccessDenied": _DENIED,
    "403": _DENIED,
    "PermanentRedirect": _REDIRECT,
    "AuthorizationHeaderMalformed": _REDIRECT,
    "IllegalLocationConstraintException": _REDIRECT,
    "301": _REDIRECT,
}
_UNREACHABLE = frozenset(
    {
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ReadTimeoutError",
        "ConnectionClosedError",
        "ProxyConnectionError",
        "SSLError",
        "HTTPClientError",
        "FSTimeoutError",
        "ResponseParserError",
    }
)
_NO_KEYS = frozenset({"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"})


def error_code(error: BaseException) -> str:
    """Return the code of a store's answer; empty when there was none."""
    for cause in (error, error.__cause__, error.__context__):
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
    return ""


def store_error(url: str, error: BaseException) -> StoreError | None:
    """Return the error that an exception of a store's library stands for; None when its cause is unknown.

    Args:
        url: What was accessed.
        error: The exception.
    """
    if store_of(url) != "s3":
        return None
    bucket = url.partition("://")[2].partition("/")[0]
    names = {type(cause).__name__ for cause in (error, error.__cause__)}
    if answer := _ANSWERS.get(error_code(error)):
        problem, remedy = (text.format(bucket=bucket) for text in answer)
        return StoreError(url, problem, remedy, is_permission=answer is _DENIED)
    if names & _NO_KEYS:
        return StoreError(url, "there are no credentials for S3", f"Set {_KEYS}.")
    if "ProfileNotFound" in names:
        return StoreError(url, "the profile does not exist", "Correct AWS_PROFILE.")
    if "ParamValidationError" in names:
        return StoreError(url, f"a bucket cannot be named '{bucket}'", "Correct the URL.")
    if names & _UNREACHABLE:
        remedy = "Check the network and the endpoint: AWS_ENDPOINT_URL, or endpoint in the [s3] table of respool.toml."
        return StoreError(url, f"{current_s3().endpoint or 'Amazon S3'} does not answer", remedy)
    return None
