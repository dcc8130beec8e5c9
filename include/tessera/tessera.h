/* tessera/tessera.h: the whole API, but for mpi.h (needs MPI). */
#ifndef TESSERA_TESSERA_H
#define TESSERA_TESSERA_H

#include <tessera/array.h>
#include <tessera/cluster.h>
#include <tessera/context.h>
#include <tessera/device.h>
#include <tessera/distributed.h>
#include <tessera/dtype.h>
#include <tessera/gemm.h>
#include <tessera/graph.h>
#include <tessera/group.h>
#include <tessera/layout.h>
#include <tessera/plan.h>
#include <tessera/session.h>
#include <tessera/source.h>
#include <tessera/status.h>
#include <tessera/tuning.h>
#include <tessera/version.h>
#include <tessera/writer.h>

#endif
