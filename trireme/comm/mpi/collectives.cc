// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>

#include <cstring>

#include "trireme/base/check.h"
#include "trireme/comm/dtypes.h"
#include "trireme/comm/mpi/mpi_backend.h"

// Maps each call of a group to nonblocking MPI calls.
namespace trireme::detail {
namespace {

char nothing;  // MPI gives null pointers a meaning

char* data_of(const at::Tensor& t) {
  return t.defined() && t.numel() ? static_cast<char*>(t.data_ptr()) : &nothing;
}
uint8_t dtype_of(const at::Tensor& t) {
  return static_cast<uint8_t>(*detail::dtype_of(t.scalar_type()));
}
uint8_t op_of(ReduceOp op) { return static_cast<uint8_t>(op); }

int64_t size_of(const at::Tensor& t) { return static_cast<int64_t>(t.element_size()); }

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const char *x = data_of(a), *y = data_of(b);
  return x < y + b.numel() * size_of(b) && y < x + a.numel() * size_of(a);
}

/// Returns `input`, or a copy if MPI would get the same memory twice.
at::Tensor copy_if_overlapping(const at::Tensor& input, const at::Tensor& output) {
  at::NoGradGuard no_grad;
  return overlap(input, output) ? input.clone() : input;
}

std::vector<int64_t> equal_parts(int n, int64_t count) {
  return std::vector<int64_t>(static_cast<size_t>(n), count);
}

}  // namespace

Token MpiBackend::post(const Call& call) {
  switch (call.op) {
    case Collective::all_reduce:
      return all_reduce(call);
    case Collective::broadcast:
      return broadcast(call);
    case Collective::reduce:
      return reduce(call);
    case Collective::all_gather:
      return all_gather(call);
    case Collective::reduce_scatter:
      return reduce_scatter(call);
    case Collective::gather:
      return gather(call);
    case Collective::scatter:
      return scatter(call);
    case Collective::all_to_all:
      return all_to_all(call);
    case Collective::send:
    case Collective::recv:
      return message(call);
    case Collective::barrier:
      return barrier(call);
    default:
      fail<UsageError>("{}: the mpi backend does not support it", name_of(call.op));
  }
}

Token MpiBackend::launch(const Call& call, std::vector<at::Tensor> keep,
                         const std::function<int(Pending&)>& start, std::function<void()> finish) {
  check_usable();
  const bool pair = call.facts().is_message;
  What what{.op = call.named(), .site = call.site};
  if (const at::Tensor* t = call.counted()) {
    what.dtype = t->scalar_type();
    what.count = t->numel();
  }
  if (pair || call.facts().has_root) what.peer = call.root;
  if (!pair) what.sequence = ++collectives_;
  const Token token{++posted_, call.op == Collective::recv ? what.peer : -1, 1};
  const auto at = pending_.emplace(token.number, std::make_unique<Pending>()).first;
  Pending& p = *at->second;
  p.call = what;
  p.keep = std::move(keep);
  p.finish = std::move(finish);
  if (const int code = start(p)) give_up(what, code);
  if (!advance(p)) return token;
  complete(at);
  return call.op == Collective::recv ? token : Token{};  // for source()
}

int MpiBackend::start_request(Pending& p, const std::function<int(TriremeMpiRequest*)>& start,
                              int64_t expected) {
  TriremeMpiRequest request = 0;
  const int code = start(&request);
  if (code == 0) p.requests.push_back({request, expected});
  return code;
}

int MpiBackend::start_send(Pending& p, const char* data, int64_t count, int64_t size, uint8_t dtype,
                           int to, int tag) {
  return start_request(p, [&](TriremeMpiRequest* r) {
    return comm_->api.send(comm_->handle(), data, count, limits_.piece(size), dtype, to, tag, r);
  });
}

int MpiBackend::start_recv(Pending& p, char* data, int64_t count, int64_t size, uint8_t dtype,
                           int from, int tag) {
  return start_request(
      p,
      [&](TriremeMpiRequest* r) {
        return comm_->api.recv(comm_->handle(), data, count, limits_.piece(size), dtype, from, tag,
                               r);
      },
      count * size);
}

int MpiBackend::exchange(Pending& p, const char* in, const std::vector<int64_t>& in_counts,
                         char* out, const std::vector<int64_t>& out_counts, int64_t size,
                         uint8_t dtype) {
  const int tag = comm_->tag(MpiCommunicator::kParts);
  const char* mine = in;
  for (int r = 0; r < this->size(); ++r) {
    const int64_t count = in_counts[static_cast<size_t>(r)];
    if (r == rank()) mine = in;
    if (count == kNoMessage) continue;
    if (r != rank())
      if (const int code = start_send(p, in, count, size, dtype, r, tag)) return code;
    in += count * size;
  }
  for (int r = 0; r < this->size(); ++r) {
    const int64_t count = out_counts[static_cast<size_t>(r)];
    if (count == kNoMessage) continue;
    if (r != rank()) {
      if (const int code = start_recv(p, out, count, size, dtype, r, tag)) return code;
    } else if (count && mine != out) {
      std::memcpy(out, mine, static_cast<size_t>(count * size));
    }
    out += count * size;
  }
  return 0;
}

std::function<void()> MpiBackend::divide(const at::Tensor& tensor, ReduceOp op) const {
  if (op != ReduceOp::avg) return {};
  return [tensor, n = size()] {
    at::NoGradGuard no_grad;
    tensor.div_(n);
  };
}

Token MpiBackend::all_reduce(const Call& call) {
  const at::Tensor& t = *call.input;
  const ReduceOp op = call.reduction;
  return launch(
      call, {t},
      [&](Pending& p) {
        for (const MpiPiece& piece : mpi_pieces(t.numel(), limits_.piece(size_of(t))))
          if (const int code = start_request(p, [&](TriremeMpiRequest* r) {
                return comm_->api.all_reduce(comm_->handle(), data_of(t) + piece.begin * size_of(t),
                                             piece.count, dtype_of(t), op_of(op), r);
              }))
            return code;
        return 0;
      },
      divide(t, op));
}

Token MpiBackend::broadcast(const Call& call) {
  const at::Tensor& t = *call.input;
  const int root = call.root;
  return launch(call, {t}, [&](Pending& p) {
    for (const MpiPiece& piece : mpi_pieces(t.numel(), limits_.piece(size_of(t))))
      if (const int code = start_request(p, [&](TriremeMpiRequest* r) {
            return comm_->api.broadcast(comm_->handle(), data_of(t) + piece.begin * size_of(t),
                                        piece.count, dtype_of(t), root, r);
          }))
        return code;
    return 0;
  });
}

Token MpiBackend::reduce(const Call& call) {
  const at::Tensor& t = *call.input;
  const ReduceOp op = call.reduction;
  const int root = call.root;
  const bool here = rank() == root;
  return launch(
      call, {t},
      [&](Pending& p) {
        for (const MpiPiece& piece : mpi_pieces(t.numel(), limits_.piece(size_of(t)))) {
          char* at = data_of(t) + piece.begin * size_of(t);
          if (const int code = start_request(p, [&](TriremeMpiRequest* r) {
                return comm_->api.reduce(comm_->handle(), here ? nullptr : at, here ? at : nullptr,
                                         piece.count, dtype_of(t), op_of(op), root, r);
              }))
            return code;
        }
        return 0;
      },
      here ? divide(t, op) : std::function<void()>{});
}

Token MpiBackend::all_gather(const Call& call) {
  const at::Tensor &output = *call.output, &input = *call.input;
  const int64_t count = input.numel(), bytes = size_of(input);
  const bool in_place = count && data_of(input) == data_of(output) + rank() * count * bytes;
  const at::Tensor in = in_place ? input : copy_if_overlapping(input, output);
  return launch(call, {in, output}, [&](Pending& p) {
    if (limits_.fit(count, bytes, size()))
      return start_request(p, [&](TriremeMpiRequest* r) {
        return comm_->api.all_gather(comm_->handle(), in_place ? nullptr : data_of(in),
                                     data_of(output), static_cast<int32_t>(count), dtype_of(in), r);
      });
    const int tag = comm_->tag(MpiCommunicator::kParts);
    if (!in_place)
      std::memcpy(data_of(output) + rank() * count * bytes, data_of(in),
                  static_cast<size_t>(count * bytes));
    for (int r = 0; r < size(); ++r)
      if (r != rank())
        if (const int code = start_recv(p, data_of(output) + r * count * bytes, count, bytes,
                                        dtype_of(in), r, tag))
          return code;
    for (int r = 0; r < size(); ++r)
      if (r != rank())
        if (const int code = start_send(p, data_of(in), count, bytes, dtype_of(in), r, tag))
          return code;
    return 0;
  });
}

Token MpiBackend::reduce_scatter(const Call& call) {
  const at::Tensor &output = *call.output, &input = *call.input;
  const ReduceOp op = call.reduction;
  const int64_t count = output.numel(), bytes = size_of(output);
  const at::Tensor in = copy_if_overlapping(input, output);
  return launch(
      call, {in, output},
      [&](Pending& p) {
        if (limits_.fit(count, bytes, size()))
          return start_request(p, [&](TriremeMpiRequest* r) {
            return comm_->api.reduce_scatter(comm_->handle(), data_of(in), data_of(output),
                                             static_cast<int32_t>(count), dtype_of(in), op_of(op),
                                             r);
          });
        // One reduction for each rank's part.
        for (int root = 0; root < size(); ++root)
          for (const MpiPiece& piece : mpi_pieces(count, limits_.piece(bytes))) {
            const char* from = data_of(in) + (root * count + piece.begin) * bytes;
            char* to = root == rank() ? data_of(output) + piece.begin * bytes : nullptr;
            if (const int code = start_request(p, [&](TriremeMpiRequest* r) {
                  return comm_->api.reduce(comm_->handle(), from, to, piece.count, dtype_of(in),
                                           op_of(op), root, r);
                }))
              return code;
          }
        return 0;
      },
      divide(output, op));
}

Token MpiBackend::gather(const Call& call) {
  const at::Tensor &output = *call.output, &input = *call.input;
  const int root = call.root;
  const int64_t count = input.numel(), bytes = size_of(input);
  const bool here = rank() == root;
  const bool in_place = here && count && data_of(input) == data_of(output) + root * count * bytes;
  const at::Tensor in = here && !in_place ? copy_if_overlapping(input, output) : input;
  return launch(call, {in, output}, [&](Pending& p) {
    if (limits_.fit(count, bytes, size()))
      return start_request(p, [&](TriremeMpiRequest* r) {
        return comm_->api.gather(comm_->handle(), in_place ? nullptr : data_of(in),
                                 here ? data_of(output) : nullptr, static_cast<int32_t>(count),
                                 dtype_of(in), root, r);
      });
    std::vector<int64_t> to_root = equal_parts(size(), kNoMessage);
    to_root[static_cast<size_t>(root)] = count;
    return exchange(p, data_of(in), to_root, data_of(output),
                    equal_parts(size(), here ? count : kNoMessage), bytes, dtype_of(in));
  });
}

Token MpiBackend::scatter(const Call& call) {
  const at::Tensor &output = *call.output, &input = *call.input;
  const int root = call.root;
  const int64_t count = output.numel(), bytes = size_of(output);
  const bool here = rank() == root;
  const bool in_place = here && count && data_of(output) == data_of(input) + root * count * bytes;
  const at::Tensor in = here && !in_place ? copy_if_overlapping(input, output) : input;
  return launch(call, {in, output}, [&](Pending& p) {
    if (limits_.fit(count, bytes, size()))
      return start_request(p, [&](TriremeMpiRequest* r) {
        return comm_->api.scatter(comm_->handle(), here ? data_of(in) : nullptr,
                                  in_place ? nullptr : data_of(output), static_cast<int32_t>(count),
                                  dtype_of(output), root, r);
      });
    std::vector<int64_t> from_root = equal_parts(size(), kNoMessage);
    from_root[static_cast<size_t>(root)] = count;
    return exchange(p, data_of(in), equal_parts(size(), here ? count : kNoMessage), data_of(output),
                    from_root, bytes, dtype_of(output));
  });
}

Token MpiBackend::all_to_all(const Call& call) {
  const at::Tensor &output = *call.output, &input = *call.input;
  // Not MPI_Ialltoallv: its ints limit the sum of the parts, and a rank with small parts does not
  // know that another has large ones. Pairs have no such limit, and report who sent how much.
  const at::Tensor in = copy_if_overlapping(input, output);
  return launch(call, {in, output}, [&](Pending& p) {
    return exchange(p, data_of(in), *call.input_counts, data_of(output), *call.output_counts,
                    size_of(in), dtype_of(in));
  });
}

Token MpiBackend::message(const Call& call) {
  const at::Tensor& t = *call.input;
  check<UsageError>(call.tag <= comm_->max_tag(), "{}: tag {}; {} takes tags up to {}",
                    name_of(call.op), call.tag, comm_->api.library, comm_->max_tag());
  return launch(call, {t}, [&](Pending& p) {
    const int tag = comm_->tag(call.tag);
    return call.op == Collective::send
               ? start_send(p, data_of(t), t.numel(), size_of(t), dtype_of(t), call.root, tag)
               : start_recv(p, data_of(t), t.numel(), size_of(t), dtype_of(t), call.root, tag);
  });
}

Token MpiBackend::barrier(const Call& call) {
  return launch(call, {}, [&](Pending& p) {
    return start_request(
        p, [&](TriremeMpiRequest* r) { return comm_->api.barrier(comm_->handle(), r); });
  });
}

}  // namespace trireme::detail
