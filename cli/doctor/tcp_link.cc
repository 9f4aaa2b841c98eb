// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/tcp_link.h"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/net/bytes.h"
#include "trireme/net/connect.h"

namespace trireme::doctor {
namespace {

constexpr size_t kLargeTcpBytes = size_t{4} << 20;
constexpr int kTcpEchoes = 200, kTcpLarge = 8;

double wall_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// A question: u64 of bytes that follow; 0 asks for the time. Its answer: the time in ns.
void send_number(net::Socket& socket, uint64_t value, Deadline deadline) {
  socket.send_all(net::Writer().u64(value).bytes(), deadline);
}
uint64_t recv_number(net::Socket& socket, Deadline deadline) {
  char bytes[8];
  socket.recv_all(bytes, sizeof bytes, deadline);
  return net::Reader(std::string_view(bytes, sizeof bytes), "answer").u64();
}

void serve(net::Socket& socket, Deadline deadline) {
  std::vector<char> buffer(kLargeTcpBytes);
  while (true) {
    const uint64_t bytes = recv_number(socket, deadline);
    if (bytes == UINT64_MAX) return;  // done
    check<Corrupt>(bytes <= kLargeTcpBytes, "{} asks for {} bytes", socket.peer(), bytes);
    if (bytes > 0) socket.recv_all(buffer.data(), bytes, deadline);
    send_number(socket, static_cast<uint64_t>(wall_seconds() * 1e9), deadline);
  }
}

}  // namespace

void answer_link(net::Listener& listener, const std::string& token, Deadline deadline) {
  while (true) {
    net::Socket socket = listener.accept(deadline);
    try {
      char got[kTokenBytes];
      socket.recv_all(got, sizeof got, net::sooner(deadline, std::chrono::seconds(2)));
      if (token.compare(0, kTokenBytes, got, sizeof got) != 0) continue;
    } catch (const Error&) {
      continue;  // a stranger
    }
    return serve(socket, deadline);
  }
}

LinkFigures ask_link(const std::string& endpoint, const std::string& token, Deadline deadline) {
  LinkFigures figures;
  try {
    // Some seconds: the listener is there already, or it is not reached at all.
    net::Socket socket = net::connect(net::Endpoint::parse(endpoint),
                                      net::sooner(deadline, std::chrono::seconds(4)));
    socket.send_all(token, deadline);
    std::vector<Echo> echoes;
    double shortest = 1e9;
    for (int i = 0; i < kTcpEchoes; ++i) {
      const auto begin = Clock::now();
      Echo echo;
      echo.sent = wall_seconds();
      send_number(socket, 0, deadline);
      echo.answered = static_cast<double>(recv_number(socket, deadline)) * 1e-9;
      echo.back = wall_seconds();
      echoes.push_back(echo);
      shortest = std::min(shortest, seconds_since(begin));
    }
    const std::string large(kLargeTcpBytes, 't');
    double moved = 1e9;
    for (int i = 0; i < kTcpLarge; ++i) {
      const auto begin = Clock::now();
      send_number(socket, kLargeTcpBytes, deadline);
      socket.send_all(large, deadline);
      recv_number(socket, deadline);
      moved = std::min(moved, seconds_since(begin) - shortest / 2);
    }
    send_number(socket, UINT64_MAX, deadline);
    figures.model = link_model(shortest / 2, moved, static_cast<double>(kLargeTcpBytes));
    figures.clock = clock_difference(echoes);
  } catch (const Error& e) {
    figures.error = e.what();
  }
  return figures;
}

}  // namespace trireme::doctor
