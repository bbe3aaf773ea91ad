// Reports without what says whose machine it was (--no-host-info).
#pragma once

#include <string>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// Takes host names, addresses of networks, UUIDs and serial numbers out of the report, wherever
/// they are written, and leaves of absolute paths of the invocation and of variables the name of
/// the file. `host_names` are those by which a layout calls its hosts.
void leave_out_host_info(Report& report, const std::vector<std::string>& host_names = {});

}  // namespace nearmetal
