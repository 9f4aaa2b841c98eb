// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"

// Sockets on which processes of one user hand over descriptors of memory: in a launcher's private
// folder, or by a name without a file (abstract_address.h). Nothing here waits.
namespace trireme {

/// Listens at this path, however deep it lies. ResourceError.
TRIREME_API UniqueFd listen_for_descriptors(const std::string& path, int backlog);
/// Empty, with errno: nobody listens there.
TRIREME_API UniqueFd connect_for_descriptors(const std::string& path);

/// The same for a name.
TRIREME_API UniqueFd listen_for_descriptors_at_name(const std::string& name, int backlog);
TRIREME_API UniqueFd connect_for_descriptors_at_name(const std::string& name);

/// Who is at the other end, as the kernel says: who connected, or who listens.
struct DescriptorPeer {
  UniqueFd socket;
  pid_t pid = 0;
};
/// Nothing: there is no more, for now. Processes of other users are turned away, with an empty
/// socket.
TRIREME_API std::optional<DescriptorPeer> accept_for_descriptors(int listener);
/// The process at the other end; 0: it is not seen from here. -1: it is another user's.
TRIREME_API pid_t descriptor_peer_of(int socket);

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
