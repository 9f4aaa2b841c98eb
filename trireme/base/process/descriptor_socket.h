// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"

// A socket in a launcher's private folder, on which its workers hand over descriptors of memory.
// Nothing here waits.
namespace trireme {

/// Listens at this path, however deep it lies. ResourceError.
TRIREME_API UniqueFd listen_for_descriptors(const std::string& path, int backlog);
/// Empty, with errno: nobody listens there.
TRIREME_API UniqueFd connect_for_descriptors(const std::string& path);

/// Who connected, as the kernel says.
struct DescriptorPeer {
  UniqueFd socket;
  pid_t pid = 0;
};
/// Nothing: there is no more, for now. Processes of other users are turned away, with an empty
/// socket.
TRIREME_API std::optional<DescriptorPeer> accept_for_descriptors(int listener);

/// One message of these bytes, with a descriptor or (-1) without. False, with errno: not sent.
TRIREME_API bool send_descriptor(int socket, const void* bytes, size_t size, int fd);

struct ReceivedDescriptor {
  enum End : uint8_t { message, nothing_there, closed } end = nothing_there;
  bool whole = false;     // a message of exactly this size
  bool too_many = false;  // it brought more than one descriptor
  UniqueFd fd;            // empty: it came without
};
TRIREME_API ReceivedDescriptor receive_descriptor(int socket, void* bytes, size_t size);

/// What is wrong with a descriptor that should be memory without a name, of a sealed size and with
/// all of its pages there ("is no shared memory without a name", …), or "". Whatever it is, asking
/// does not wait.
TRIREME_API std::string fault_in_memory(int fd);

}  // namespace trireme
