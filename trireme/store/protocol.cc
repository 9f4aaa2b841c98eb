// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/protocol.h"

#include "trireme/base/check.h"
#include "trireme/store/store.h"

namespace trireme::detail {
namespace {

void put_keys(net::Writer& out, const std::vector<std::string>& keys) {
  out.u32(static_cast<uint32_t>(keys.size()));
  for (const auto& key : keys) out.string(key);
}

std::vector<std::string> get_keys(net::Reader& in) {
  std::vector<std::string> keys;
  uint32_t n = in.count(sizeof(uint32_t));
  check<Corrupt>(n <= kMaxKeysAtOnce, "{} keys in one message of the store, at most {}", n,
                 kMaxKeysAtOnce);
  for (uint32_t i = 0; i < n; ++i) keys.emplace_back(in.string(Store::kMaxKeyBytes));
  return keys;
}

bool takes_keys(Op op, size_t n) {
  if (op == Op::wait || op == Op::missing) return true;
  return n == (op == Op::clear_will || op == Op::goodbye ? 0 : 1);
}

}  // namespace

std::string encode(const Request& request) {
  net::Writer out;
  out.u64(request.timeout_ms).i64(request.delta);
  put_keys(out, request.keys);
  out.string(request.value).string(request.expected);
  return net::encode_frame(static_cast<uint16_t>(request.op), out.bytes());
}

std::string encode(const Reply& reply) {
  net::Writer out;
  out.i64(reply.number).string(reply.value);
  put_keys(out, reply.keys);
  return net::encode_frame(static_cast<uint16_t>(reply.status), out.bytes());
}

Request decode_request(const net::Frame& frame) {
  check<Corrupt>(frame.type >= static_cast<uint16_t>(Op::set) &&
                     frame.type <= static_cast<uint16_t>(Op::goodbye),
                 "the store has no operation {}", frame.type);
  Request out;
  out.op = static_cast<Op>(frame.type);
  net::Reader in(frame.payload, "request to the store");
  out.timeout_ms = in.u64();
  out.delta = in.i64();
  out.keys = get_keys(in);
  out.value = in.string();
  out.expected = in.string();
  in.finish();
  check<Corrupt>(takes_keys(out.op, out.keys.size()),
                 "operation {} of the store does not take {} keys", frame.type, out.keys.size());
  return out;
}

Reply decode_reply(const net::Frame& frame) {
  check<Corrupt>(frame.type >= static_cast<uint16_t>(Status::ok) &&
                     frame.type <= static_cast<uint16_t>(Status::resource_error),
                 "the store answered with a frame of type {}", frame.type);
  Reply out;
  out.status = static_cast<Status>(frame.type);
  net::Reader in(frame.payload, "reply of the store");
  out.number = in.i64();
  out.value = in.string();
  out.keys = get_keys(in);
  in.finish();
  return out;
}

}  // namespace trireme::detail
