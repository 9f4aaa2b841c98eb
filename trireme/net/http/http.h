// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

namespace trireme::net {

/// PEM files for https. "": the system's authorities, and no certificate of ours.
struct TlsFiles {
  std::string authorities, certificate, key;
};

struct HttpReply {
  int status = 0;
  std::string body;
  std::string local_host;  // this host's numeric address on the way to the server
};

/// Whether this build has libcurl's headers, and this machine the library.
TRIREME_API bool has_http();

/// Sends requests over HTTP/1.1 and keeps its connection between them. Answers are a stranger's
/// bytes: their size is bounded, nothing in them is followed (no redirect), and no proxy of the
/// environment is asked. By libcurl, which is loaded when the first client is made, so that no
/// other process pays for it. One thread at a time.
class TRIREME_API HttpClient {
 public:
  static constexpr size_t kMaxHeaderBytes = 64 << 10;
  static constexpr size_t kMaxBodyBytes = 256 << 10;

  /// ResourceError: no libcurl.
  explicit HttpClient(TlsFiles tls = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;

  /// PeerLost: nobody answers, or the connection ended. Timeout: not within `limit`. Corrupt: what
  /// answers speaks no HTTP, or says too much. UsageError: the certificate is not to be trusted, or
  /// a file of ours is not one. Aborted: `give_up`, asked about once a second, said so.
  HttpReply post(const std::string& url, const std::string& json, Duration limit,
                 const std::function<bool()>& give_up = {});

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace trireme::net
