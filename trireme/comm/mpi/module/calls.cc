// SPDX-License-Identifier: Apache-2.0
#include <climits>
#include <cstdio>

#include "trireme/comm/local/types.h"
#include "trireme/comm/mpi/module/module.h"

namespace trireme::mpi_module {

using local::DType;

namespace {

/// MPI has no 2-byte floats: they are sent as uint16, and our own kernels reduce them.
template <DType dtype, ReduceOp op>
void fold(void* in, void* inout, int* count, MPI_Datatype*) {
  process().host->reduce(static_cast<uint8_t>(dtype), static_cast<uint8_t>(op), in, inout,
                         static_cast<size_t>(*count));
}

int half_row(ReduceOp op) {
  switch (op) {
    case ReduceOp::min:
      return 1;
    case ReduceOp::max:
      return 2;
    case ReduceOp::product:
      return 3;
    default:
      return 0;
  }
}

template <DType dtype>
void make_half_ops(MPI_Op* ops) {
  MPI_Op_create(fold<dtype, ReduceOp::sum>, 1, &ops[0]);
  MPI_Op_create(fold<dtype, ReduceOp::min>, 1, &ops[1]);
  MPI_Op_create(fold<dtype, ReduceOp::max>, 1, &ops[2]);
  MPI_Op_create(fold<dtype, ReduceOp::product>, 1, &ops[3]);
}

/// Runs `call` with a request, under the lock.
template <class Call>
int begin(TriremeMpiRequest* request, const Call& call) {
  std::lock_guard lock(process().one_at_a_time);
  if (!alive()) return MPI_ERR_COMM;
  MPI_Request made = MPI_REQUEST_NULL;
  const int code = call(&made);
  *request = bits_of(made);
  return code;
}

const void* or_in_place(const void* p) { return p ? p : MPI_IN_PLACE; }

int barrier(void* comm, TriremeMpiRequest* request) {
  return begin(request, [&](MPI_Request* r) { return MPI_Ibarrier(of(comm), r); });
}

int all_reduce(void* comm, void* data, int32_t count, uint8_t dtype, uint8_t op,
               TriremeMpiRequest* request) {
  return begin(request, [&](MPI_Request* r) {
    return MPI_Iallreduce(MPI_IN_PLACE, data, count, type_of(dtype), op_of(dtype, op), of(comm), r);
  });
}

int broadcast(void* comm, void* data, int32_t count, uint8_t dtype, int32_t root,
              TriremeMpiRequest* request) {
  return begin(request, [&](MPI_Request* r) {
    return MPI_Ibcast(data, count, type_of(dtype), root, of(comm), r);
  });
}

int reduce(void* comm, const void* in, void* out, int32_t count, uint8_t dtype, uint8_t op,
           int32_t root, TriremeMpiRequest* request) {
  return begin(request, [&](MPI_Request* r) {
    return MPI_Ireduce(or_in_place(in), out, count, type_of(dtype), op_of(dtype, op), root,
                       of(comm), r);
  });
}

int all_gather(void* comm, const void* in, void* out, int32_t count, uint8_t dtype,
               TriremeMpiRequest* request) {
  return begin(request, [&](MPI_Request* r) {
    return MPI_Iallgather(or_in_place(in), count, type_of(dtype), out, count, type_of(dtype),
                          of(comm), r);
  });
}

int reduce_scatter(void* comm, const void* in, void* out, int32_t count, uint8_t dtype, uint8_t op,
                   TriremeMpiRequest* request) {
  return begin(request, [&](MPI_Request* r) {
    return MPI_Ireduce_scatter_block(in, out, count, type_of(dtype), op_of(dtype, op), of(comm), r);
  });
}

int gather(void* comm, const void* in, void* out, int32_t count, uint8_t dtype, int32_t root,
           TriremeMpiRequest* request) {
  return begin(request, [&](MPI_Request* r) {
    return MPI_Igather(or_in_place(in), count, type_of(dtype), out, count, type_of(dtype), root,
                       of(comm), r);
  });
}

int scatter(void* comm, const void* in, void* out, int32_t count, uint8_t dtype, int32_t root,
            TriremeMpiRequest* request) {
  return begin(request, [&](MPI_Request* r) {
    return MPI_Iscatter(in, count, type_of(dtype), out ? out : MPI_IN_PLACE, count, type_of(dtype),
                        root, of(comm), r);
  });
}

/// Describes `count` elements as a number of elements of a type; `made`: the caller must free the
/// type.
struct Shape {
  int count;
  MPI_Datatype type;
  bool made = false;
};

int shape(int64_t count, int64_t limit, uint8_t dtype, Shape* out) {
  const MPI_Datatype base = type_of(dtype);
  *out = {static_cast<int>(count), base};
  if (count <= limit && count <= INT_MAX) return MPI_SUCCESS;
  const auto piece = static_cast<int>(limit);
  const int64_t pieces = count / limit;
  if (pieces > INT_MAX) return MPI_ERR_COUNT;
  MPI_Aint bottom, extent;
  int code = MPI_Type_get_extent(base, &bottom, &extent);
  if (code != MPI_SUCCESS) return code;
  MPI_Datatype block, blocks;
  if ((code = MPI_Type_contiguous(piece, base, &block)) != MPI_SUCCESS) return code;
  code = MPI_Type_contiguous(static_cast<int>(pieces), block, &blocks);
  MPI_Type_free(&block);
  if (code != MPI_SUCCESS) return code;
  const int lengths[2] = {1, static_cast<int>(count % limit)};
  const MPI_Aint begins[2] = {0, static_cast<MPI_Aint>(pieces * limit) * extent};
  const MPI_Datatype types[2] = {blocks, base};
  code = MPI_Type_create_struct(2, lengths, begins, types, &out->type);
  MPI_Type_free(&blocks);
  if (code != MPI_SUCCESS) return code;
  out->count = 1;
  out->made = true;
  return MPI_Type_commit(&out->type);
}

template <class Call>
int message(int64_t count, int64_t limit, uint8_t dtype, TriremeMpiRequest* request,
            const Call& call) {
  return begin(request, [&](MPI_Request* r) {
    Shape s;
    int code = shape(count, limit, dtype, &s);
    if (code == MPI_SUCCESS) code = call(s, r);
    if (s.made) MPI_Type_free(&s.type);
    return code;
  });
}

int send(void* comm, const void* data, int64_t count, int64_t limit, uint8_t dtype, int32_t to,
         int32_t tag, TriremeMpiRequest* request) {
  return message(count, limit, dtype, request, [&](const Shape& s, MPI_Request* r) {
    return MPI_Isend(data, s.count, s.type, to, tag, of(comm), r);
  });
}

int recv(void* comm, void* data, int64_t count, int64_t limit, uint8_t dtype, int32_t from,
         int32_t tag, TriremeMpiRequest* request) {
  return message(count, limit, dtype, request, [&](const Shape& s, MPI_Request* r) {
    return MPI_Irecv(data, s.count, s.type, from < 0 ? MPI_ANY_SOURCE : from, tag, of(comm), r);
  });
}

int test(TriremeMpiRequest* request, bool* done, TriremeMpiStatus* status) {
  std::lock_guard lock(process().one_at_a_time);
  if (!alive()) return MPI_ERR_COMM;
  MPI_Request r = request_of(*request);
  MPI_Status s;
  int flag = 0;
  const int code = MPI_Test(&r, &flag, &s);
  *request = bits_of(r);
  *done = code == MPI_SUCCESS && flag;
  if (!*done || !status) return code;
  status->source = s.MPI_SOURCE;
  MPI_Count bytes = 0;
  MPI_Get_elements_x(&s, MPI_BYTE, &bytes);
  status->bytes = bytes;
  return code;
}

int probe(void* comm, int32_t tag, bool* found, int32_t* source) {
  std::lock_guard lock(process().one_at_a_time);
  if (!alive()) return MPI_ERR_COMM;
  int flag = 0;
  MPI_Status s;
  const int code = MPI_Iprobe(MPI_ANY_SOURCE, tag, of(comm), &flag, &s);
  *found = code == MPI_SUCCESS && flag;
  if (*found) *source = s.MPI_SOURCE;
  return code;
}

TriremeMpiError describe(int code, char* text, size_t text_size) {
  std::lock_guard lock(process().one_at_a_time);
  if (!alive()) {
    std::snprintf(text, text_size, "MPI_Finalize was called before this group was destroyed");
    return kTriremeMpiOther;
  }
  char words[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0, kind = MPI_SUCCESS;
  if (MPI_Error_string(code, words, &length) != MPI_SUCCESS)
    std::snprintf(words, sizeof words, "MPI error %d", code);
  std::snprintf(text, text_size, "%s", words);
  MPI_Error_class(code, &kind);
  if (kind == MPI_ERR_TRUNCATE) return kTriremeMpiTruncated;
  if (kind == MPI_ERR_NO_MEM) return kTriremeMpiNoMemory;
#ifdef MPIX_ERR_PROC_FAILED
  if (kind == MPIX_ERR_PROC_FAILED) return kTriremeMpiPeerLost;
#endif
  return kTriremeMpiOther;
}

}  // namespace

void make_half_ops(Process& p) {
  make_half_ops<DType::f16>(p.half_ops[0]);
  make_half_ops<DType::bf16>(p.half_ops[1]);
}

MPI_Datatype type_of(uint8_t dtype) {
  switch (static_cast<DType>(dtype)) {
    case DType::f64:
      return MPI_DOUBLE;
    case DType::f32:
      return MPI_FLOAT;
    case DType::f16:
    case DType::bf16:
      return MPI_UINT16_T;
    case DType::i64:
      return MPI_INT64_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::u8:
      return MPI_UINT8_T;
    case DType::i16:
      return MPI_INT16_T;
    case DType::i8:
      return MPI_INT8_T;
    case DType::c64:
      return MPI_C_FLOAT_COMPLEX;
    case DType::c128:
      return MPI_C_DOUBLE_COMPLEX;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op op_of(uint8_t dtype, uint8_t op) {
  const auto type = static_cast<DType>(dtype);
  const auto red = static_cast<ReduceOp>(op);
  if (type == DType::f16 || type == DType::bf16)
    return process().half_ops[type == DType::bf16][half_row(red)];
  switch (red) {
    case ReduceOp::sum:
    case ReduceOp::avg:  // the caller divides
      return MPI_SUM;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::product:
      return MPI_PROD;
    case ReduceOp::band:
      return MPI_BAND;
    case ReduceOp::bor:
      return MPI_BOR;
    case ReduceOp::bxor:
      return MPI_BXOR;
  }
  return MPI_OP_NULL;
}

void fill_calls(TriremeMpiModule& m) {
  m.barrier = barrier;
  m.all_reduce = all_reduce;
  m.broadcast = broadcast;
  m.reduce = reduce;
  m.all_gather = all_gather;
  m.reduce_scatter = reduce_scatter;
  m.gather = gather;
  m.scatter = scatter;
  m.send = send;
  m.recv = recv;
  m.test = test;
  m.probe = probe;
  m.describe = describe;
}

}  // namespace trireme::mpi_module
