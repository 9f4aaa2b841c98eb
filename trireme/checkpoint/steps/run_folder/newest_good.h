// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"

namespace trireme {

/// The step folder that a run which nobody watches goes on from; "": the run folder (which need not
/// be there) holds no step. Every byte of it has been read and fits its checksum.
///
/// `latest` first, then what is before it, then the rest, each from the newest. A damaged step on
/// the way (or what was one: a step's name and its files, but no index) is renamed to
/// damaged-step-00000100, with a warning that says why; `latest` then names the step that is
/// taken. Folders that only look like steps are left alone. For one process; nobody saves there
/// meanwhile.
///
/// Corrupt: all that the folder holds is damaged, or `latest` names a step and there is none.
/// Beginning anew would give up that work without a word. UsageError: a step of a newer format.
/// ResourceError: the disk fails, also when it is asked a second time; what it did not give is not
/// called damaged, and the error names the older step that can be resumed by its path.
TRIREME_API std::string newest_good_step(const std::string& run_dir);

}  // namespace trireme
