// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/wire/messages.h"

#include <cstring>

#include "trireme/base/check.h"

namespace trireme::rpc::wire {
namespace {

constexpr std::string_view kMagic = "TRrp";

enum class Kind : uint8_t {
  hello = 1,
  call = 2,
  reply = 3,
  failure = 4,
  began = 5,
  cancel = 6,
  goodbye = 7,
};

constexpr uint8_t kHasContext = 1;  // a flag of a call

// Where a call has what is known when it leaves: behind kind:u8 flags:u8 method:u32.
constexpr size_t kCallId = 6;
constexpr size_t kCallBudget = 14;

class Out {
 public:
  explicit Out(Kind kind) { number(static_cast<uint8_t>(kind)); }
  template <class T>
  Out& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  /// Cut where it is longer.
  Out& text(std::string_view value, size_t limit) {
    value = value.substr(0, limit);
    number(static_cast<uint32_t>(value.size()));
    bytes_ += value;
    return *this;
  }
  Out& raw(std::string_view value) {
    bytes_ += value;
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class In {
 public:
  explicit In(std::string_view bytes) : left_(bytes) {}
  template <class T>
  T number() {
    check<Corrupt>(left_.size() >= sizeof(T), "a message of a remote call ends too early");
    T value;
    std::memcpy(&value, left_.data(), sizeof value);
    left_.remove_prefix(sizeof value);
    return value;
  }
  bool yes_or_no() {
    const auto value = number<uint8_t>();
    check<Corrupt>(value <= 1, "a message of a remote call has {} where 0 or 1 belongs", value);
    return value == 1;
  }
  std::string text(size_t limit) {
    const auto length = number<uint32_t>();
    check<Corrupt>(length <= limit && length <= left_.size(),
                   "a message of a remote call has a text of {} bytes, and {} are left of it",
                   length, left_.size());
    std::string value(left_.substr(0, length));
    left_.remove_prefix(length);
    return value;
  }
  std::string_view raw(size_t bytes) {
    check<Corrupt>(left_.size() >= bytes, "a message of a remote call ends too early");
    const auto value = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return value;
  }
  size_t left() const { return left_.size(); }
  void finish() const {
    check<Corrupt>(left_.empty(), "a message of a remote call has {} bytes too many", left_.size());
  }

 private:
  std::string_view left_;
};

Hello decode_hello(In& in) {
  check<Corrupt>(in.raw(kMagic.size()) == kMagic,
                 "this is no worker of remote calls: it does not begin with {}", kMagic);
  const auto version = in.number<uint16_t>();
  check<Mismatch>(version == kVersion,
                  "a worker speaks version {} of remote calls, and this one speaks version {}: use "
                  "the same build everywhere",
                  version, kVersion);
  check<Corrupt>(in.number<uint16_t>() == 0, "a worker's hello has flags that nobody knows");
  check<Corrupt>(in.left() <= kMaxHello, "a worker's hello has {} bytes", in.left());
  Hello hello;
  hello.worker = in.text(kMaxName);
  hello.member = in.number<int64_t>();
  const auto methods = in.number<uint32_t>();
  check<Corrupt>(methods <= kMaxMethods && methods <= in.left() / 8,
                 "a worker's hello promises {} methods", methods);
  hello.methods.reserve(methods);
  for (uint32_t i = 0; i < methods; ++i) {
    auto& method = hello.methods.emplace_back();
    method.name = in.text(kMaxName);
    method.signature = in.text(kMaxSignature);
  }
  in.finish();
  return hello;
}

Call decode_call(In& in) {
  const auto flags = in.number<uint8_t>();
  check<Corrupt>((flags & ~kHasContext) == 0, "a call has flags that nobody knows");
  Call call;
  call.method = in.number<uint32_t>();
  call.id = in.number<uint64_t>();
  call.budget_us = in.number<uint64_t>();
  const auto links = in.number<uint8_t>();
  check<Corrupt>(links <= kMaxChain, "a call is the last of a chain of {}", links);
  call.chain.reserve(links);
  for (uint8_t i = 0; i < links; ++i) {
    auto& link = call.chain.emplace_back();
    link.worker = in.text(kMaxName);
    link.method = in.text(kMaxName);
  }
  if (flags & kHasContext) {
    auto& context = call.context.emplace();
    context.member = in.number<int64_t>();
    context.number = in.number<uint64_t>();
    context.message = in.number<uint64_t>();
  }
  return call;
}

Failure decode_failure(In& in) {
  Failure failure;
  failure.id = in.number<uint64_t>();
  failure.began = in.yes_or_no();
  failure.kind = in.text(kMaxName);
  failure.type = in.text(kMaxName);
  failure.text = in.text(kMaxText);
  failure.worker = in.text(kMaxName);
  failure.rank = in.number<int32_t>();
  failure.peer = in.number<int32_t>();
  failure.op = in.text(kMaxName);
  failure.seq = in.number<int64_t>();
  in.finish();
  return failure;
}

}  // namespace

std::string encode(const Hello& hello) {
  check<UsageError>(hello.methods.size() <= kMaxMethods,
                    "worker '{}' offers {} methods, and at most {} are possible", hello.worker,
                    hello.methods.size(), kMaxMethods);
  Out out(Kind::hello);
  out.raw(kMagic).number(kVersion).number(uint16_t{0});
  out.text(hello.worker, kMaxName).number(hello.member);
  out.number(static_cast<uint32_t>(hello.methods.size()));
  for (const auto& method : hello.methods) {
    check<UsageError>(
        method.name.size() <= kMaxName && method.signature.size() <= kMaxSignature,
        "the method '{}' has a name of {} bytes and a signature of {}; at most {} and "
        "{} are possible",
        method.name.substr(0, 80), method.name.size(), method.signature.size(), kMaxName,
        kMaxSignature);
    out.text(method.name, kMaxName).text(method.signature, kMaxSignature);
  }
  std::string bytes = out.take();
  check<UsageError>(bytes.size() <= kMaxHello,
                    "the names and signatures of worker '{}' take {} bytes, and at most {} are "
                    "possible: offer fewer methods, or shorter structs",
                    hello.worker, bytes.size(), kMaxHello);
  return bytes;
}

std::string encode(const Failure& failure) {
  Out out(Kind::failure);
  out.number(failure.id).number(static_cast<uint8_t>(failure.began));
  out.text(failure.kind, kMaxName).text(failure.type, kMaxName).text(failure.text, kMaxText);
  out.text(failure.worker, kMaxName).number(failure.rank).number(failure.peer);
  return out.text(failure.op, kMaxName).number(failure.seq).take();
}

std::string encode(const Began& began) { return Out(Kind::began).number(began.id).take(); }

std::string encode(const Cancel& cancel) { return Out(Kind::cancel).number(cancel.id).take(); }

std::string encode(const Goodbye&) { return Out(Kind::goodbye).take(); }

std::string encode(const Reply& reply) { return Out(Kind::reply).number(reply.id).take(); }

std::string encode(const Call& call) {
  check<UsageError>(call.chain.size() <= kMaxChain,
                    "calls within calls are more than {} deep: {}. A handler that calls itself "
                    "through others must come to an end",
                    kMaxChain, shown(call.chain));
  Out out(Kind::call);
  out.number(call.context ? kHasContext : uint8_t{0})
      .number(call.method)
      .number(call.id)
      .number(call.budget_us);
  out.number(static_cast<uint8_t>(call.chain.size()));
  for (const auto& link : call.chain) out.text(link.worker, kMaxName).text(link.method, kMaxName);
  if (const auto& context = call.context)
    out.number(context->member).number(context->number).number(context->message);
  return out.take();
}

void complete(std::string& call, uint64_t id, uint64_t budget_us) {
  std::memcpy(call.data() + kCallId, &id, sizeof id);
  std::memcpy(call.data() + kCallBudget, &budget_us, sizeof budget_us);
}

Decoded decode(std::string_view bytes) {
  In in(bytes);
  const auto kind = in.number<uint8_t>();
  const auto with_id = [&]<class T>(T message) {
    message.id = in.number<uint64_t>();
    return message;
  };
  Decoded decoded;
  switch (static_cast<Kind>(kind)) {
    case Kind::hello:
      decoded.message = decode_hello(in);
      break;
    case Kind::call:
      decoded.message = decode_call(in);
      break;
    case Kind::reply:
      decoded.message = with_id(Reply());
      break;
    case Kind::failure:
      decoded.message = decode_failure(in);
      break;
    case Kind::began:
      decoded.message = with_id(Began());
      in.finish();
      break;
    case Kind::cancel:
      decoded.message = with_id(Cancel());
      in.finish();
      break;
    case Kind::goodbye:
      decoded.message = Goodbye();
      in.finish();
      break;
    default:
      fail<Corrupt>("a message of a remote call is of kind {}, which there is not", kind);
  }
  decoded.value_at = bytes.size() - in.left();
  return decoded;
}

std::string shown(const std::vector<Link>& chain) {
  // A chain that runs in a circle is long and says little: its ends are enough.
  constexpr size_t kEnds = 4;
  std::string text;
  for (size_t i = 0; i < chain.size(); ++i) {
    if (chain.size() > 2 * kEnds + 1 && i == kEnds) {
      text += fmt::format(" → {} more", chain.size() - 2 * kEnds);
      i = chain.size() - kEnds;
    }
    text +=
        fmt::format("{}'{}' on '{}'", text.empty() ? "" : " → ", chain[i].method, chain[i].worker);
  }
  return text;
}

}  // namespace trireme::rpc::wire
