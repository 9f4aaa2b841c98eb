// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/http/http.h"

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/net/printable.h"

namespace trireme::net {
namespace {

/// The functions of libcurl that are used here.
struct Curl {
  std::string missing;  // why it is of no use
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;

  Curl() {
    void* library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      say(::dlerror());
      return;
    }
    const auto load = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
      if (!function) say(name);
    };
    load(global_init, "curl_global_init");
    load(easy_init, "curl_easy_init");
    load(easy_setopt, "curl_easy_setopt");
    load(easy_perform, "curl_easy_perform");
    load(easy_getinfo, "curl_easy_getinfo");
    load(easy_strerror, "curl_easy_strerror");
    load(easy_cleanup, "curl_easy_cleanup");
    load(slist_append, "curl_slist_append");
    load(slist_free_all, "curl_slist_free_all");
    if (missing.empty() && global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) say("it does not start");
  }
  void say(const char* why) { missing = why ? why : "unknown"; }
};

const Curl& curl() {
  static const Curl library;  // its global state begins once, whichever thread comes first
  return library;
}

/// What one request has brought so far.
struct Answer {
  size_t header_bytes = 0;
  std::string body;
  bool too_much = false;
  const std::function<bool()>* give_up = nullptr;
};

size_t take_header(char*, size_t size, size_t count, void* to) {
  auto& answer = *static_cast<Answer*>(to);
  answer.header_bytes += size * count;
  answer.too_much = answer.header_bytes > HttpClient::kMaxHeaderBytes;
  return answer.too_much ? 0 : size * count;
}

size_t take_body(char* bytes, size_t size, size_t count, void* to) {
  auto& answer = *static_cast<Answer*>(to);
  answer.too_much = answer.body.size() + size * count > HttpClient::kMaxBodyBytes;
  if (answer.too_much) return 0;
  answer.body.append(bytes, size * count);
  return size * count;
}

int go_on(void* to, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& answer = *static_cast<Answer*>(to);
  return *answer.give_up && (*answer.give_up)() ? 1 : 0;
}

[[noreturn]] void fail_as(CURLcode code, const Answer& answer, const std::string& why) {
  if (answer.too_much)
    fail<Corrupt>("the answer is longer than {} KiB", HttpClient::kMaxBodyBytes >> 10);
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      fail<Timeout>("{}", why);
    case CURLE_ABORTED_BY_CALLBACK:
      fail<Aborted>("given up");
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL:  // bytes without a status line
    case CURLE_BAD_CONTENT_ENCODING:
      fail<Corrupt>("it speaks no HTTP ({})", why);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ISSUER_ERROR:
      fail<UsageError>("{}", why);
    case CURLE_SSL_CONNECT_ERROR:  // the server may just be ending
      fail<PeerLost>("no connection by TLS: {}", why);
    default:
      fail<PeerLost>("{}", why);
  }
}

}  // namespace

bool has_http() { return curl().missing.empty(); }

struct HttpClient::Handle {
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  char error[CURL_ERROR_SIZE] = "";

  ~Handle() {
    if (easy) curl().easy_cleanup(easy);
    if (headers) curl().slist_free_all(headers);
  }
  template <class Value>
  void set(CURLoption option, Value value) {
    const CURLcode code = curl().easy_setopt(easy, option, value);
    check<ResourceError>(code == CURLE_OK, "libcurl does not take option {}: {}",
                         static_cast<int>(option), curl().easy_strerror(code));
  }
  std::optional<std::string> text(CURLINFO which) const {
    const char* value = nullptr;
    if (curl().easy_getinfo(easy, which, &value) != CURLE_OK || !value) return std::nullopt;
    return value;
  }
};

HttpClient::HttpClient(TlsFiles tls) : handle_(std::make_unique<Handle>()) {
  check<ResourceError>(curl().missing.empty(),
                       "libcurl.so.4 cannot be used ({}): install it (Debian: libcurl4)",
                       curl().missing);
  Handle& h = *handle_;
  h.easy = curl().easy_init();
  h.headers = curl().slist_append(nullptr, "Content-Type: application/json");
  check<ResourceError>(h.easy && h.headers, "libcurl has no memory for a client");
  h.set(CURLOPT_ERRORBUFFER, h.error);
  h.set(CURLOPT_HTTPHEADER, h.headers);
  h.set(CURLOPT_PROTOCOLS_STR, "http,https");
  h.set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  h.set(CURLOPT_PROXY, "");
  h.set(CURLOPT_NOSIGNAL, 1L);
  h.set(CURLOPT_FOLLOWLOCATION, 0L);
  h.set(CURLOPT_HEADERFUNCTION, &take_header);
  h.set(CURLOPT_WRITEFUNCTION, &take_body);
  h.set(CURLOPT_NOPROGRESS, 0L);
  h.set(CURLOPT_XFERINFOFUNCTION, &go_on);
  if (!tls.authorities.empty()) h.set(CURLOPT_CAINFO, tls.authorities.c_str());
  if (!tls.certificate.empty()) h.set(CURLOPT_SSLCERT, tls.certificate.c_str());
  if (!tls.key.empty()) h.set(CURLOPT_SSLKEY, tls.key.c_str());
}

HttpClient::~HttpClient() = default;

HttpReply HttpClient::post(const std::string& url, const std::string& json, Duration limit,
                           const std::function<bool()>& give_up) {
  Handle& h = *handle_;
  Answer answer;
  answer.give_up = &give_up;
  const auto ms = std::max<int64_t>(1, std::chrono::ceil<std::chrono::milliseconds>(limit).count());
  h.set(CURLOPT_URL, url.c_str());
  h.set(CURLOPT_POSTFIELDSIZE, static_cast<long>(json.size()));
  h.set(CURLOPT_POSTFIELDS, json.c_str());
  h.set(CURLOPT_HEADERDATA, &answer);
  h.set(CURLOPT_WRITEDATA, &answer);
  h.set(CURLOPT_XFERINFODATA, &answer);
  h.set(CURLOPT_TIMEOUT_MS, static_cast<long>(ms));
  h.error[0] = '\0';
  const CURLcode code = curl().easy_perform(h.easy);
  if (code != CURLE_OK)
    fail_as(code, answer, printable(h.error[0] ? h.error : curl().easy_strerror(code)));
  HttpReply reply;
  long status = 0;
  curl().easy_getinfo(h.easy, CURLINFO_RESPONSE_CODE, &status);
  reply.status = static_cast<int>(status);
  reply.body = std::move(answer.body);
  reply.local_host = h.text(CURLINFO_LOCAL_IP).value_or("");
  return reply;
}

}  // namespace trireme::net
