// SPDX-License-Identifier: Apache-2.0
#pragma once

// Debian's libgloo-dev lacks this header of Gloo's, which <gloo/transport/tcp/unbound_buffer.h>
// includes for one member, its last. We look at the members before it and never make such an
// object, so these names are enough. Found after all other include folders: a real one wins.
namespace gloo {

template <class T>
class ShareableNonOwningPtr;

template <class T>
class WeakNonOwningPtr {
 public:
  explicit WeakNonOwningPtr(const ShareableNonOwningPtr<T>&);
};

template <class T>
class ShareableNonOwningPtr {
 public:
  explicit ShareableNonOwningPtr(T*);
  ~ShareableNonOwningPtr();
};

}  // namespace gloo
