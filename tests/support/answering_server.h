// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/process/quiet_thread.h"
#include "trireme/net/listener.h"

namespace trireme::testing {

/// A server on loopback that says the same to everybody, one after the other, whatever it is asked.
class AnsweringServer {
 public:
  /// `answer` writes to the socket; it is closed afterwards.
  explicit AnsweringServer(std::function<void(net::Socket&)> answer,
                           net::Listener listener = net::Listener::loopback())
      : listener_(std::move(listener)),
        answer_(std::move(answer)),
        thread_(quiet_thread([this] { serve(); })) {}
  explicit AnsweringServer(const std::string& bytes,
                           net::Listener listener = net::Listener::loopback())
      : AnsweringServer(
            [bytes](net::Socket& socket) {
              socket.send_all(bytes, Deadline::after(std::chrono::seconds(20)));
            },
            std::move(listener)) {}
  ~AnsweringServer() {
    stop_ = true;
    thread_.join();
  }

  std::string endpoint() const { return listener_.endpoint().address.text(); }
  int served() const { return served_; }
  bool stopped() const { return stop_; }

 private:
  void serve() {
    while (!stop_) try {
        net::Socket socket = listener_.accept(Deadline::after(std::chrono::milliseconds(50)));
        ++served_;
        char request[4096];
        if (socket.wait_readable(Deadline::after(std::chrono::seconds(5))))
          socket.recv_now(request, sizeof request);
        answer_(socket);
        socket.shutdown_write();
        // What is still unread would make the close a reset that overtakes the answer.
        const auto enough = Deadline::after(std::chrono::milliseconds(200));
        while (socket.wait_readable(enough)) {
          const auto read = socket.recv_now(request, sizeof request);
          if (read && *read == 0) break;
        }
      } catch (const Error&) {  // nobody came, or the other end has had enough
      }
  }

  net::Listener listener_;
  const std::function<void(net::Socket&)> answer_;
  std::atomic<bool> stop_{false};
  std::atomic<int> served_{0};
  std::thread thread_;
};

/// "HTTP/1.1 200 OK" with a body.
inline std::string http_answer(const std::string& body, const std::string& status = "200 OK") {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nContent-Type: application/json\r\n\r\n" + body;
}

}  // namespace trireme::testing
