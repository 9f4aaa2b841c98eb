// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/local/letter.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/process/descriptor_socket.h"

namespace trireme::channel::local {

void Letter::set_text(std::string_view words) {
  text_bytes = static_cast<uint32_t>(std::min(words.size(), kTextBytes));
  std::memcpy(text, words.data(), text_bytes);
}

ReceivedLetter receive_letter(int socket) {
  ReceivedLetter got;
  errno = 0;
  ReceivedDescriptor received = receive_descriptor(socket, &got.content, sizeof got.content);
  // One who closed with letters unread is told of first, and then what he had said.
  if (received.end == ReceivedDescriptor::closed && errno == ECONNRESET)
    received = receive_descriptor(socket, &got.content, sizeof got.content);
  if (received.end == ReceivedDescriptor::nothing_there) return got;
  if (received.end == ReceivedDescriptor::closed) {
    got.state = ReceivedLetter::closed;
    return got;
  }
  got.fd = std::move(received.fd);
  got.lost_fd = received.too_many;
  const Letter& letter = got.content;
  got.state = letter.magic != kLetterMagic       ? ReceivedLetter::damaged
              : letter.version != kSharedVersion ? ReceivedLetter::other_version
              : !received.whole                  ? ReceivedLetter::damaged
              : letter.text_bytes > kTextBytes   ? ReceivedLetter::damaged
                                                 : ReceivedLetter::letter;
  return got;
}

bool send_letter(int socket, const Letter& letter, int fd) {
  return send_descriptor(socket, &letter, sizeof letter, fd);
}

std::string LocalAddress::text() const {
  return fmt::format("local:{}:{}:{}", socket, knock, answer);
}

LocalAddress LocalAddress::parse(const std::string& text) {
  constexpr size_t kHex = 32;
  const std::string start = "local:";
  const bool whole = text.size() == start.size() + 3 * kHex + 2 && text.starts_with(start) &&
                     text[start.size() + kHex] == ':' && text[start.size() + 2 * kHex + 1] == ':';
  check<UsageError>(whole, "'{}' is not the address of a hub on this host", text);
  const auto part = [&](size_t i) { return text.substr(start.size() + i * (kHex + 1), kHex); };
  return {part(0), part(1), part(2)};
}

::trireme::local::Window map_shared(const UniqueFd& fd, uint64_t bytes, const std::string& whose) {
  const std::string fault = fd ? fault_in_memory(fd.get()) : "is not there";
  check<Corrupt>(fault.empty(), "what {} shares {}", whose, fault);
  struct stat info {};
  check<Corrupt>(
      ::fstat(fd.get(), &info) == 0 && bytes > 0 && static_cast<uint64_t>(info.st_size) == bytes,
      "{} shares {} bytes and says {}", whose, info.st_size, bytes);
  return ::trireme::local::Window::map(fd, bytes);
}

}  // namespace trireme::channel::local
