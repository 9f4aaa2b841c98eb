// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/local/letter.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
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
  return fmt::format("local:{}:{}:{}:{}", socket, knock, answer, bell);
}

LocalAddress LocalAddress::parse(const std::string& text) {
  constexpr size_t kHex = 32;
  const std::string start = "local:";
  const size_t bell_at = start.size() + 3 * (kHex + 1);
  int bell = -1;
  bool whole = text.size() > bell_at && text.starts_with(start);
  for (size_t i = 1; whole && i <= 3; ++i) whole = text[start.size() + i * (kHex + 1) - 1] == ':';
  if (whole) {
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + bell_at, end, bell);
    whole = read.ec == std::errc() && read.ptr == end && bell >= 0;
  }
  check<UsageError>(whole, "'{}' is not the address of a hub on this host", text);
  const auto part = [&](size_t i) { return text.substr(start.size() + i * (kHex + 1), kHex); };
  return {part(0), part(1), part(2), bell};
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
