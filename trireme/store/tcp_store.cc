// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/tcp_store.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/net/connect_and_authenticate.h"
#include "trireme/store/protocol.h"

namespace trireme {

using detail::Op;
using detail::Reply;
using detail::Request;
using detail::Status;

namespace {

constexpr Duration kGrace = std::chrono::seconds(5);  // of an answer that says that time is up

Request request_for(Op op, const std::string& key) {
  detail::check_key(key);
  Request request;
  request.op = op;
  request.keys = {key};
  return request;
}

net::Credentials credentials_at(const net::Endpoint& at, net::Credentials credentials) {
  if (at.is_unix()) credentials.secret.reset();
  return credentials;
}

}  // namespace

std::unique_ptr<TcpStore> TcpStore::connect(const net::Endpoint& at, net::Credentials credentials,
                                            Deadline deadline, Duration answer_limit) {
  auto own = credentials_at(at, std::move(credentials));
  auto entry = detail::connect_and_authenticate_until(at, own, deadline);
  return std::make_unique<TcpStore>(std::move(*entry.socket), std::move(entry.session), at,
                                    std::move(own), answer_limit);
}

TcpStore::TcpStore(net::Socket socket, net::Session session, net::Endpoint at,
                   net::Credentials credentials, Duration answer_limit)
    : socket_(std::move(socket)),
      session_(std::move(session)),
      at_(std::move(at)),
      credentials_(std::move(credentials)),
      answer_limit_(answer_limit) {}

TcpStore::~TcpStore() {
  if (!broken_.empty() || !use_.is_of_this_process()) return;
  if (has_will_) try {
      Request goodbye;
      goodbye.op = Op::goodbye;
      socket_.send_all(session_.seal(detail::encode(goodbye)),
                       Deadline::after(std::chrono::seconds(1)));
    } catch (const std::exception& error) {  // then the will stands
      log_debug("no goodbye to the store at {}: {}", at_.text(), error.what());
    }
  // A child of a fork has the connection too, and would keep it open.
  if (socket_) socket_.shutdown_write();
}

/// `deadline`: when the reply must be here at the latest.
Reply TcpStore::call(const Request& request, Deadline deadline) {
  detail::OneUser guard(use_);
  trireme::check<PeerLost>(broken_.empty(), "{}", broken_);
  auto start = Clock::now();
  std::string frame = detail::encode(request);  // may refuse its size: nothing has been sent
  Reply reply;
  try {
    socket_.send_all(session_.seal(std::move(frame)), net::sooner(deadline, answer_limit_));
    auto* seal = session_.in ? &*session_.in : nullptr;
    auto answer = net::recv_frame(socket_, net::kMaxPayloadAfter, deadline, seal);
    if (auto refused = net::read_refusal(answer))
      fail<Corrupt>("it closed this connection: {}", refused->text);
    reply = detail::decode_reply(answer);
  } catch (const PeerLost& error) {
    broken_ = fmt::format(
        "the store at {} is gone: the process that serves it (rank 0, or the launcher) ended ({})",
        at_.text(), error.what());
    socket_.close();
    throw PeerLost(broken_);
  } catch (const Timeout&) {
    broken_ = fmt::format(
        "the store at {} did not answer within {:.1f} s: is the process that serves it (rank 0, or "
        "the "
        "launcher) stopped, or the network cut?",
        at_.text(), seconds_since(start));
    socket_.close();
    throw Timeout(broken_);
  } catch (const Corrupt& error) {
    broken_ =
        fmt::format("the connection to the store at {} is given up: {}", at_.text(), error.what());
    socket_.close();
    throw PeerLost(broken_);
  } catch (const Error& error) {
    broken_ =
        fmt::format("the connection to the store at {} is unusable: {}", at_.text(), error.what());
    socket_.close();
    throw;
  }
  if (reply.status == Status::usage_error)
    fail<UsageError>("store {}: {}", at_.text(), reply.value);
  if (reply.status == Status::resource_error)
    fail<ResourceError>("store {}: {}", at_.text(), reply.value);
  return reply;
}

Reply TcpStore::call(const Request& request) {
  return call(request, Deadline::after(answer_limit_));
}

Reply TcpStore::call_waiting(Request request, Deadline deadline) {
  auto start = Clock::now();
  request.timeout_ms = detail::kNoTimeout;
  auto answer_by = Deadline::never();
  if (!deadline.is_never()) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
    request.timeout_ms = static_cast<uint64_t>(left.count());
    answer_by = Deadline::after(left + std::min(kGrace, answer_limit_));
  }
  auto reply = call(request, answer_by);
  trireme::check<Timeout>(reply.status == Status::ok, "store {}: {} was not set within {:.1f} s",
                          at_.text(), detail::name_keys(reply.keys), seconds_since(start));
  return reply;
}

void TcpStore::set(const std::string& key, std::string_view value) {
  detail::check_value(key, value);
  auto request = request_for(Op::set, key);
  request.value = value;
  call(request);
}

std::string TcpStore::get(const std::string& key, Deadline deadline) {
  return call_waiting(request_for(Op::get, key), deadline).value;
}

std::optional<std::string> TcpStore::try_get(const std::string& key) {
  auto reply = call(request_for(Op::try_get, key));
  if (reply.status == Status::absent) return std::nullopt;
  return std::move(reply.value);
}

int64_t TcpStore::add(const std::string& key, int64_t delta) {
  auto request = request_for(Op::add, key);
  request.delta = delta;
  return call(request).number;
}

std::string TcpStore::compare_set(const std::string& key, std::string_view expected,
                                  std::string_view desired) {
  detail::check_value(key, desired);
  auto request = request_for(Op::compare_set, key);
  request.expected = expected;
  request.value = desired;
  return call(request).value;
}

void TcpStore::wait(const std::vector<std::string>& keys, Deadline deadline) {
  detail::check_keys(keys);
  Request request;
  request.op = Op::wait;
  request.keys = keys;
  call_waiting(std::move(request), deadline);
}

std::vector<std::string> TcpStore::missing(const std::vector<std::string>& keys) {
  detail::check_keys(keys);
  Request request;
  request.op = Op::missing;
  request.keys = keys;
  return call(request).keys;
}

bool TcpStore::delete_key(const std::string& key) {
  return call(request_for(Op::erase, key)).number != 0;
}

int64_t TcpStore::count_keys(std::string_view prefix) {
  Request request;
  request.op = Op::count;
  request.keys = {std::string(prefix)};
  return call(request).number;
}

void TcpStore::set_will(const std::string& key, std::string_view value) {
  detail::check_value(key, value);
  auto request = request_for(Op::set_will, key);
  request.value = value;
  call(request);
  has_will_ = true;
}

void TcpStore::clear_will() {
  if (!has_will_) return;
  Request request;
  request.op = Op::clear_will;
  call(request);
  has_will_ = false;
}

std::unique_ptr<Store> TcpStore::clone(Deadline deadline) {
  use_.made_in.check("this store");
  return connect(at_, credentials_, deadline, answer_limit_);
}

}  // namespace trireme
