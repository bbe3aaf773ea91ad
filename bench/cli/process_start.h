// What a process settles about itself before it does anything else.
#pragma once

namespace nearmetal {

/// Opens those of the descriptors 0 to 2 that are closed, so that no file takes their place and
/// what is meant for a terminal; what is written to them still fails. Makes a reader that went away
/// and a file that may not grow errors of the write. Takes relative and empty elements, which mean
/// the current folder, out of PATH: no program comes from there, for children neither.
void settle_process();

}  // namespace nearmetal
