// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/base/file/lock_file.h"
#include "trireme/base/process/process_id.h"

// The half of SaverLock for file systems without locks.
namespace trireme {

/// Null while another saver has the file, which `holder` (may be null) then names.
TRIREME_API std::unique_ptr<LockFile> take_saver_lock_file(const std::string& path, Duration beat,
                                                           Duration silence, std::string* holder);
/// Whether nobody has it, or only who is dead, whose file is removed.
TRIREME_API bool saver_lock_file_is_free(const std::string& path, Duration silence,
                                         std::string* holder);

/// What such a file says; a text that is no holder's name is nobody's.
TRIREME_API std::string saver_lock_text(const ProcessId& holder, const std::string& token);
TRIREME_API std::optional<ProcessId> read_saver_lock(const std::string& text);

}  // namespace trireme
