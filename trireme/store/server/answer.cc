// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/server/answer.h"

namespace trireme::detail {
namespace {

std::optional<Reply> try_answer(KeyTable& table, const Request& request) {
  Reply reply;
  switch (request.op) {
    case Op::set:
      table.set(request.keys[0], request.value);
      return reply;
    case Op::try_get:
      if (auto value = table.find(request.keys[0]))
        reply.value = std::move(*value);
      else
        reply.status = Status::absent;
      return reply;
    case Op::add:
      reply.number = table.add(request.keys[0], request.delta);
      return reply;
    case Op::compare_set:
      reply.value = table.compare_set(request.keys[0], request.expected, request.value);
      return reply;
    case Op::missing:
      reply.keys = table.missing(request.keys);
      return reply;
    case Op::erase:
      reply.number = table.erase(request.keys[0]);
      return reply;
    case Op::count:
      reply.number = table.count(request.keys[0]);
      return reply;
    case Op::get:
    case Op::wait:
    case Op::set_will:
    case Op::clear_will:
    case Op::goodbye:
      break;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Reply> answer(KeyTable& table, const Request& request) {
  try {
    return try_answer(table, request);
  } catch (const Error& error) {
    return reply_to(error);
  }
}

Reply reply_to(const Error& error) {
  bool full = dynamic_cast<const ResourceError*>(&error) != nullptr;
  return {full ? Status::resource_error : Status::usage_error, 0, error.what(), {}};
}

}  // namespace trireme::detail
