"""The messages of V2 over gRPC and of grpc.health.v1, as tables: field numbers are the contract, names are not sent.

They live in a descriptor pool of their own. The default pool refuses a second file that defines a name, so with them in
it no process could import this server and a client's generated code (tritonclient.grpc, kserve) side by side.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

Message = Any
"""An instance of a class of ``classes``; protobuf makes these classes at run time, so no type names their fields."""

_DURATIONS = ["success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"]

_MESSAGES: Mapping[str, str] = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "1 bool live",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "1 bool ready",
    "ModelReadyRequest": "1 string name, 2 string version",
    "ModelReadyResponse": "1 bool ready",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "1 string name, 2 string version, 3 string* extensions",
    "ModelMetadataRequest": "1 string name, 2 string version",
    "ModelMetadataResponse": "1 string name, 2 string* versions, 3 string platform, 4 TensorMetadata* inputs,"
    "5 TensorMetadata* outputs, 6 map:string properties",
    "TensorMetadata": "1 string name, 2 string datatype, 3 int64* shape",
    "InferParameter": "1 bool? bool_param, 2 int64? int64_param, 3 string? string_param, 4 double? double_param,"
    "5 uint64? uint64_param",
    "InferTensorContents": "1 bool* bool_contents, 2 int32* int_contents, 3 int64* int64_contents,"
    "4 uint32* uint_contents, 5 uint64* uint64_contents, 6 float* fp32_contents, 7 double* fp64_contents,"
    "8 bytes* bytes_contents",
    "ModelInferRequest": "1 string model_name, 2 string model_version, 3 string id, 4 map:InferParameter parameters,"
    "5 InferInputTensor* inputs, 6 InferRequestedOutputTensor* outputs, 7 bytes* raw_input_contents",
    "InferInputTensor": "1 string name, 2 string datatype, 3 int64* shape, 4 map:InferParameter parameters,"
    "5 InferTensorContents contents",
    "InferRequestedOutputTensor": "1 string name, 2 map:InferParameter parameters",
    "ModelInferResponse": "1 string model_name, 2 string model_version, 3 string id, 4 map:InferParameter parameters,"
    "5 InferOutputTensor* outputs, 6 bytes* raw_output_contents",
    "InferOutputTensor": "1 string name, 2 string datatype, 3 int64* shape, 4 map:InferParameter parameters,"
    "5 InferTensorContents contents",
    "ModelStreamInferResponse": "1 string error_message, 2 ModelInferResponse infer_response",
    "ModelConfigRequest": "1 string name, 2 string version",
    "ModelConfigResponse": "1 ModelConfig config",
    "ModelConfig": "1 string name, 2 string platform, 3 ModelVersionPolicy version_policy, 4 int32 max_batch_size,"
    "5 ModelInput* input, 6 ModelOutput* output, 7 ModelInstanceGroup* instance_group, 11 ModelDynamicBatching dynamic_batching,"
    "13 ModelSequenceBatching sequence_batching, 14 map:ModelParameter parameters, 17 string backend,"
    "19 ModelTransactionPolicy model_transaction_policy, 24 ModelResponseCache response_cache",
    "ModelInstanceGroup": "1 string name, 2 int32 count, 4 InstanceKind kind",
    "ModelVersionPolicy": "1 LatestVersions latest, 2 AllVersions all, 3 SpecificVersions specific",
    "LatestVersions": "1 uint32 num_versions",
    "AllVersions": "",
    "SpecificVersions": "1 int64* versions",
    "ModelInput": "1 string name, 2 DataType data_type, 4 int64* dims, 8 bool optional",
    "ModelOutput": "1 string name, 2 DataType data_type, 3 int64* dims, 4 string label_filename",
    "ModelDynamicBatching": "1 int32* preferred_batch_size, 2 uint64 max_queue_delay_microseconds,"
    "3 bool preserve_ordering, 4 uint64 priority_levels, 5 uint64 default_priority_level",
    "ModelSequenceBatching": "1 uint64 max_sequence_idle_microseconds",
    "ModelParameter": "1 string string_value",
    "ModelTransactionPolicy": "1 bool decoupled",
    "ModelResponseCache": "1 bool enable",
    "ModelStatisticsRequest": "1 string name, 2 string version",
    "ModelStatisticsResponse": "1 ModelStatistics* model_stats",
    "ModelStatistics": "1 string name, 2 string version, 3 uint64 last_inference, 4 uint64 inference_count,"
    "5 uint64 execution_count, 6 InferStatistics inference_stats, 7 InferBatchStatistics* batch_stats,"
    "8 MemoryUsage* memory_usage, 9 map:InferResponseStatistics response_stats",
    "InferStatistics": ",".join(f"{number} StatisticDuration {name}" for number, name in enumerate(_DURATIONS, 1)),
    "StatisticDuration": "1 uint64 count, 2 uint64 ns",
    "InferBatchStatistics": "1 uint64 batch_size, 2 StatisticDuration compute_input,"
    "3 StatisticDuration compute_infer, 4 StatisticDuration compute_output",
    "InferResponseStatistics": "1 StatisticDuration compute_infer, 2 StatisticDuration compute_output,"
    "3 StatisticDuration success, 4 StatisticDuration fail, 5 StatisticDuration empty_response,"
    "6 StatisticDuration cancel",
    "MemoryUsage": "1 string type, 2 int64 id, 3 uint64 byte_size",
    "RepositoryIndexRequest": "1 string repository_name, 2 bool ready",
    "RepositoryIndexResponse": "1 ModelIndex* models",
    "ModelIndex": "1 string name, 2 string version, 3 string state, 4 string reason",
    "RepositoryModelLoadRequest": "1 string repository_name, 2 string model_name,"
    "3 map:ModelRepositoryParameter parameters",
    "RepositoryModelLoadResponse": "",
    "RepositoryModelUnloadRequest": "1 string repository_name, 2 string model_name,"
    "3 map:ModelRepositoryParameter parameters",
    "RepositoryModelUnloadResponse": "",
    "ModelRepositoryParameter": "1 bool? bool_param, 2 int64? int64_param, 3 string? string_param,4 bytes? bytes_param",
    "LogSettingsRequest": "1 map:LogSettingValue settings",
    "LogSettingsResponse": "1 map:LogSettingValue settings",
    "LogSettingValue": "1 bool? bool_param, 2 uint32? uint32_param, 3 string? string_param",
    "HealthCheckRequest": "1 string service",
    "HealthCheckResponse": "1 ServingStatus status",
}
"""Message = its fields, each ``number type name``. ``*`` is repeated, ``?`` one of a choice, ``map:`` from strings."""

_ENUMS: Mapping[str, str] = {
    "DataType": "TYPE_INVALID TYPE_BOOL TYPE_UINT8 TYPE_UINT16 TYPE_UINT32 TYPE_UINT64 TYPE_INT8 TYPE_INT16 TYPE_INT32"
    " TYPE_INT64 TYPE_FP16 TYPE_FP32 TYPE_FP64 TYPE_STRING TYPE_BF16",
    "InstanceKind": "KIND_AUTO KIND_GPU KIND_CPU KIND_MODEL",
    "ServingStatus": "UNKNOWN SERVING NOT_SERVING SERVICE_UNKNOWN",
}
"""Enumeration = the names of its values, from 0 on."""

_CHOICE = "choice"


@cache
def classes() -> Mapping[str, type[Message]]:
    """The message classes by name, made once in a process. Raises ImportError where protobuf is not installed."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="forwardpass.proto", package="inference", syntax="proto3")
    for name, values in _ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values.split()):
            enum.value.add(name=value, number=number)
    for name, fields in _MESSAGES.items():
        _add_fields(file.message_type.add(name=name), fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}")) for name in _MESSAGES
    }


def parse_error() -> type[Exception]:
    """What ``FromString`` raises for bytes that are no such message."""
    from google.protobuf.message import DecodeError

    error: type[Exception] = DecodeError
    return error


def _add_fields(message: Any, fields: str) -> None:
    for number, kind, name in _split(fields):
        field = message.field.add(name=name, number=number)
        if kind.startswith("map:"):
            entry = message.nested_type.add(name="".join(part.title() for part in name.split("_")) + "Entry")
            entry.options.map_entry = True
            _type(entry.field.add(name="key", number=1, label=1), "string")
            _type(entry.field.add(name="value", number=2, label=1), kind.removeprefix("map:"))
            field.label, field.type, field.type_name = 3, 11, f".inference.{message.name}.{entry.name}"
            continue
        if kind.endswith("?"):
            if not message.oneof_decl:
                message.oneof_decl.add(name=_CHOICE)
            field.oneof_index = 0
        field.label = 3 if kind.endswith("*") else 1
        _type(field, kind.rstrip("*?"))


def _type(field: Any, kind: str) -> None:
    if kind in _MESSAGES or kind in _ENUMS:
        field.type, field.type_name = 11 if kind in _MESSAGES else 14, f".inference.{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")


def _split(fields: str) -> Iterator[tuple[int, str, str]]:
    for text in filter(None, fields.split(",")):
        number, kind, name = text.split()
        yield int(number), kind, name
