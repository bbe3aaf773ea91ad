// A plan as JSON documents.
#pragma once

#include <string>

#include "comm/launch/launch_plan.h"

namespace nearmetal {

/// The JSON Schema (2020-12) of what plan_json() writes, as reports/schema/plan.schema.json.
std::string plan_schema();

std::string plan_json(const LaunchPlan& plan);

/// A MPIJob of Kubeflow's MPI operator, version v2beta1, in JSON, which is YAML, too. A worker with
/// all GPUs of a node stands for each host, the launcher runs the shell script and prints the
/// reports to its log at the end. The addresses of the hosts must be those of mpi_job_worker().
std::string mpi_job_json(const LaunchPlan& plan, const std::string& image);

/// The name of a worker in the network of the job.
std::string mpi_job_worker(int64_t index);

}  // namespace nearmetal
