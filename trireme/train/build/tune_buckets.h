// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/grad/tuning/bucket_tuning.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/train/step_feature.h"

namespace trireme {

/// comm.tune_buckets and comm.buckets_file of a run: buckets whose size, order and algorithm are
/// tried out while it trains, and the file that keeps what was found.
class TRIREME_API TuneBuckets final : public StepFeature {
 public:
  /// Null unless the configuration asks. Every rank calls it; rank 0 reads the file. UsageError, on
  /// all, for one that is of another run while nothing is to be tried; Corrupt for one that is no
  /// such file.
  static std::unique_ptr<TuneBuckets> make(const Config& config, Group group,
                                           const NamedTensors& parameters);

  const std::shared_ptr<BucketTuning>& buckets() const { return buckets_; }
  /// "buckets as tuned: …", "tuning buckets".
  std::string describe(int64_t /*step*/) const override { return text_; }
  /// Once, when all has been tried: rank 0 writes the file, and this is what was found.
  std::string news() override;

 private:
  TuneBuckets() = default;
  std::shared_ptr<BucketTuning> buckets_;
  std::string text_, file_, of_;
  int rank_ = 0;
  bool reported_ = false;
};

/// "4.0 MiB buckets in order of arrival, all_reduce".
TRIREME_API std::string describe(const BucketSetting& setting);

/// The file: JSON, {"magic": "trireme.buckets", "version": 1, "of", "bucket_bytes", "order",
/// "algorithm", "ms_before", "ms_after"}; `of` says for which run.
struct BucketsFile {
  std::string of;
  BucketSetting setting;
  double ms_before = 0, ms_after = 0;  // of a step; 0: the start was the best
};
TRIREME_API std::string to_text(const BucketsFile& file);
/// Corrupt, with `where`, for anything else.
TRIREME_API BucketsFile buckets_of_text(std::string_view text, const std::string& where);

}  // namespace trireme
