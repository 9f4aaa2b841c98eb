// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/train/key_effects.h"

// Rows of keys that say how ranks are arranged, save, talk to each other and compute; those of what
// is trained, and how, are in key_effects_test.cc.
namespace key_effects_test {

inline std::vector<Row> rows_of_ranks() {
  using enum Seen;
  const Sets half = {"fp16.enabled=true", "fp16.emulate=true"};
  const auto codec = [](const char* type, Sets more = {}) {
    return Sets{std::string("compression.type=") + type, "compression.start_step=0"} + more;
  };
  const auto averaging = [](const char* type, Sets more = {}) {
    return Sets{std::string("averaging.type=") + type} + more;
  };
  const auto zero = [](int stage, Sets more = {}) {
    return Sets{"zero_optimization.stage=" + std::to_string(stage)} + more;
  };
  const Sets stages = {"parallelism.pp=2", "model.layers=4", "train_micro_batch_size_per_gpu=4"};

  std::vector<Row> all = {
      {"parallelism.dp", refused, "1", "3"},
      on(2, {"parallelism.dp_shard", words, "1", "2", zero(1)}),
      on(2, {"parallelism.dp_replicate", words, "1", "2", zero(1)}),
      on(2, gpt({"parallelism.tp", words, "1", "2"})),
      on(2, gpt({"parallelism.sequence_parallel", words, "false", "true", {"parallelism.tp=2"}})),
      on(2, gpt({"parallelism.cp", words, "1", "2"})),
      on(2, gpt({"parallelism.cp_method", words, "ring", "all_gather", {"parallelism.cp=2"}})),
      on(2, gpt({"parallelism.cp_balance", words, "head_tail", "none", {"parallelism.cp=2"}})),
      on(2, gpt({"parallelism.pp", words, "1", "2", {"train_micro_batch_size_per_gpu=4"}})),
      on(2, gpt({"parallelism.schedule", words, "1f1b", "gpipe", stages})),
      named("parallelism.schedule_file",
            "train_schedule_file.a_table_trains_to_the_bits_of_its_schedule"),
      on(2, gpt({"parallelism.virtual_stages", weights, "1", "2",
                 stages + Sets{"parallelism.schedule=breadth_first"}})),
      named(
          "parallelism.whole_stages",
          "train_whole_stages.with_one_of_four_stages_whole_a_quarter_of_the_blocks_is_in_memory"),
      on(2, gpt({"parallelism.stages", weights, "[1,3]", "[3,1]", stages})),
      on(2, gpt({"parallelism.partition_method", words, "uniform", "measured", stages})),
      {"checkpoint.every", files, "0", "2", {"checkpoint.keep=9"}},
      {"checkpoint.every_minutes", files, "0", "1e-9", {"checkpoint.keep=9"}},
      {"checkpoint.auto", files, "false", "true", {"checkpoint.keep=9"}},
      named("checkpoint.budget",
            "train_save_schedule.saving_costs_at_most_the_budget_from_the_second_save_on"),
      {"checkpoint.keep", files, "1", "3", {"checkpoint.every=1"}},
      gpt({"checkpoint.keep_best",
           files,
           "0",
           "3",
           {"checkpoint.keep=1", "training.eval_every=1", "training.eval_batches=1"}}),
      named("checkpoint.names",
            "train_step_names.an_epoch_ends_with_a_validation_and_a_step_of_its_own"),
      {"checkpoint.keep_every", files, "0", "2", {"checkpoint.keep=1"}},
      named("checkpoint.on_error",
            "train_run_saves.a_save_that_fails_is_a_warning_or_the_end_of_all_ranks_as_configured"),
      {"checkpoint.at_end", files, "true", "false"},
      named(
          "checkpoint.async",
          "train_async_saves.training_goes_on_while_a_step_is_written_and_tells_when_it_is_there"),
      named("checkpoint.snapshot_every",
            "train_snapshots.steps_between_checkpoints_are_in_the_launchers_memory"),
      named(
          "checkpoint.neighbour",
          "faults_restart_memory_hosts.a_host_that_dies_costs_no_read_and_another_takes_its_place"),
      named("checkpoint.folder", "train_resume.checkpoints_go_where_the_configuration_says"),
      named("checkpoint.init", "train_initial_weights.a_new_run_begins_with_them_in_every_layout"),
      named("checkpoint.init_map", "train_initial_weights.names_are_mapped_and_some_excepted"),
      named("checkpoint.init_except", "train_initial_weights.names_are_mapped_and_some_excepted"),
      named("monitor.metrics", "train_trainer.a_second_metrics_file_gets_the_same_lines"),
      named("monitor.progress", "monitor_progress.none_shows_nothing"),
      on(2, {"monitor.gradient_noise_scale", words, "false", "true"}),
      named("generate.prompt",
            "faults_train.generate_prints_the_prompt_and_as_many_bytes_as_asked"),
      named("generate.tokens",
            "faults_train.generate_prints_the_prompt_and_as_many_bytes_as_asked"),
      named("generate.temperature", "models_sampling.temperature_0_takes_the_likeliest"),
      named("generate.top_k", "models_sampling.top_k_keeps_the_k_likeliest"),
      named("comm.backend", "faults_train.backend_across_hosts_and_check_are_keys"),
      named("comm.across", "faults_train.backend_across_hosts_and_check_are_keys"),
      named("comm.check", "faults_train.backend_across_hosts_and_check_are_keys"),
      named("comm.timeout_s", "faults_train.backend_across_hosts_and_check_are_keys"),
      named("comm.bucket_mb", "parity_reproducible.bucket_sizes_do_not_show"),
      on(2, {"comm.strategy", words, "all_reduce", "adasum"}),
      named("comm.tune_buckets",
            "train_tune_buckets.what_was_found_is_written_and_the_next_run_takes_it"),
      named("comm.tuning_budget",
            "train_tune_buckets.what_was_found_is_written_and_the_next_run_takes_it"),
      named("comm.buckets_file",
            "train_tune_buckets.what_was_found_is_written_and_the_next_run_takes_it"),

      on(2, {"compression.type", weights, "none", "int8", {}}),
      on(2, {"compression.block", weights, "256", "8", codec("int8")}),
      on(2, {"compression.density", weights, "0.1", "0.5", codec("topk")}),
      on(2, {"compression.rank", weights, "4", "1", codec("powersgd")}),
      on(2, {"compression.min_compression", weights, "1", "1000", codec("powersgd")}),
      on(2, {"compression.start_step", weights, "0", "9", {"compression.type=sign"}}),
      on(2, {"compression.error_feedback", weights, "true", "false", codec("topk")}),
      on(2, {"compression.clip", weights, "own", "mean", codec("topk", {"gradient_clipping=0.1"})}),
      named("compression.max_residual", "train_exchange.auto_saves_its_choice_and_goes_on"),
      named("compression.decide_every", "train_exchange.auto_saves_its_choice_and_goes_on"),
      on(2, {"compression.warm_start", weights, "true", "false",
             codec("powersgd", {"compression.rank=1"})}),
      on(2, {"averaging.type", weights, "none", "diloco"}),
      on(2, {"averaging.period", weights, "1", "3", averaging("local_sgd")}),
      on(2, {"averaging.start_step", weights, "0", "3", averaging("local_sgd")}),
      on(2, {"averaging.near", weights, "1", "2", averaging("local_sgd")}),
      on(8, {"averaging.group_sizes", weights, "[2,8]", "[4,8]",
             averaging("hierarchical", {"averaging.periods=[1,2]"})}),
      on(4, {"averaging.periods", weights, "[1,2]", "[1,4]",
             averaging("hierarchical", {"averaging.group_sizes=[2,4]"})}),
      on(2, {"averaging.outer_lr", weights, "0.7", "0.1",
             averaging("diloco", {"averaging.period=1"})}),
      on(2, {"averaging.outer_momentum", weights, "0.9", "0.1",
             averaging("diloco", {"averaging.period=1"})}),
      on(2, {"averaging.nesterov", weights, "true", "false",
             averaging("diloco", {"averaging.period=1"})}),
      on(2, {"averaging.compression", weights, "none", "sign",
             averaging("diloco", {"averaging.period=1"})}),

      {"fp16.enabled", weights, "false", "true", {}},
      named("fp16.emulate", "train_precision.emulation_keeps_float16_and_computes_in_float32"),
      {"fp16.loss_scale", scale, "0", "128", half},
      {"fp16.initial_scale_power", scale, "8", "9", half},
      {"fp16.loss_scale_window", scale, "1000", "1", half + Sets{"fp16.initial_scale_power=4"}},
      {"fp16.hysteresis", scale, "1", "9", half + Sets{"fp16.initial_scale_power=60"}},
      named("fp16.consecutive_hysteresis",
            "optim_loss_scale.equals_deepspeeds_rule_on_every_sequence_of_ten_steps"),
      {"fp16.min_loss_scale", refused, "1", "1e30", half},
      {"bf16.enabled", weights, "false", "true"},
      {"amp.enabled", weights, "false", "true", {"amp.opt_level=O2", "amp.dtype=bf16"}},
      {"amp.opt_level", weights, "O2", "O3", {"amp.enabled=true", "amp.dtype=bf16"}},
      named("amp.dtype", "train_precision.sections_and_presets_are_plans"),
      {"torch_autocast.enabled", weights, "false", "true"},
      named("torch_autocast.dtype", "train_precision.sections_and_presets_are_plans"),
      on(2, {"communication_data_type", weights, "fp32", "bf16"}),
      {"data_types.grad_accum_dtype", refused, "fp32", "bf16"},

      named("balance.mode", "train_balance.shares_follow_the_speed_of_ranks"),
      named("elastic.mode",
            "faults_in_place.a_rank_that_is_killed_again_and_again_leaves_the_bits_of_a_calm_run"),
      named("elastic.batch",
            "train_in_place.fewer_ranks_take_as_many_samples_or_fewer_at_a_lower_rate"),
      named("balance.every", "train_balance.shares_follow_the_speed_of_ranks"),
      named("balance.hysteresis", "data_balance_plan.noise_below_the_hysteresis_changes_nothing"),
      named("balance.min_samples", "train_balance.limits_of_a_rank_are_kept"),
      named("balance.max_share", "train_balance.limits_of_a_rank_are_kept"),
      named("balance.max_samples", "train_balance.limits_of_a_rank_are_kept"),
      named("balance.memory_backoff", "train_memory_backoff.without_it_out_of_memory_ends_the_run"),
  };
  const char* disk = "shard_offload_checkpoint.its_bytes_are_those_of_state_in_memory";
  const std::pair<const char*, const char*> of_zero[] = {
      {"reduce_bucket_size", "planner_memory_plan.stages_and_their_keys_are_read"},
      {"stage3_prefetch_bucket_size",
       "shard_fully_sharded.units_after_the_first_step_are_asked_for_ahead"},
      {"stage3_param_persistence_threshold",
       "shard_fully_sharded.small_parameters_are_left_to_the_root"},
      {"stage3_max_live_parameters",
       "planner_memory.prefetch_and_live_parameters_bound_the_units_in_flight"},
      {"sub_group_size", "config_zero_keys.offload_to_disk_reads_its_keys"},
      {"offload_optimizer.device",
       "train_resume.zero_with_its_state_on_disk_goes_on_with_the_same_bits"},
      {"offload_optimizer.nvme_path",
       "train_resume.zero_with_its_state_on_disk_goes_on_with_the_same_bits"},
      {"offload_optimizer.buffer_count", disk},
      {"offload_optimizer.pipeline_read",
       "train_offload_trace.the_disk_reads_and_writes_while_the_rank_computes_and_steps"},
      {"offload_optimizer.pipeline_write",
       "train_offload_trace.the_disk_reads_and_writes_while_the_rank_computes_and_steps"},
      {"offload_param.device",
       "train_resume.zero_with_its_state_on_disk_goes_on_with_the_same_bits"},
      {"offload_param.nvme_path",
       "train_resume.zero_with_its_state_on_disk_goes_on_with_the_same_bits"},
      {"offload_param.buffer_count", "config_zero_keys.offload_to_disk_reads_its_keys"},
      {"offload_param.buffer_size", "config_zero_keys.offload_to_disk_reads_its_keys"},
      {"offload_param.max_in_cpu", "config_zero_keys.offload_to_disk_reads_its_keys"}};
  static std::vector<std::string> paths;
  paths.clear();
  paths.reserve(std::size(of_zero));
  for (const auto& [name, test] : of_zero) {
    paths.push_back(std::string("zero_optimization.") + name);
    all.push_back(named(paths.back().c_str(), test));
  }
  all.push_back(on(2, {"zero_optimization.stage", words, "0", "2"}));
  all.push_back(on(2, {"zero_optimization.share_weights", words, "false", "true", zero(1)}));
  all.push_back(on(4, {"zero_optimization.zero_hpz_partition_size", words, "1", "2", zero(3)}));
  all.push_back(on(4, {"zero_optimization.mics_shard_size", words, "-1", "2", zero(3)}));
  all.push_back(named("aio.block_size", disk));
  all.push_back(named("aio.queue_depth", disk));
  return all;
}

}  // namespace key_effects_test
