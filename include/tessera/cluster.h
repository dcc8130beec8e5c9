/* tessera/cluster.h: what the planner knows about the devices and the links between them.
 *
 * A cluster is data: it can be measured, read from a file ("tessera.cluster/1"), changed and planned for
 * without the hardware. A member's GEMM speed is a curve of measured times, not one number; figures that
 * were not measured are marked as estimates.
 *
 * Thread safety: one cluster, one thread at a time while it is changed. */
#ifndef TESSERA_CLUSTER_H
#define TESSERA_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tessera/device.h>
#include <tessera/group.h>
#include <tessera/writer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_cluster tsr_cluster;

typedef struct tsr_measure_options {
  size_t struct_size;
  bool estimate_only; /* describe the devices, measure nothing: figures are estimates */
  unsigned work;      /* of tsr_work: what is measured; the rest are estimates. 0 = all */
} tsr_measure_options;
void tsr_measure_options_init(tsr_measure_options *options);
#define TSR_MEASURE_OPTIONS(...)                                                                             \
  (&(tsr_measure_options){.struct_size = sizeof(tsr_measure_options), __VA_ARGS__})

/* [C] Describes and measures: devices[i] is local member i's (count = tsr_group_local_count). All members
 * measure at once, as they will run: at most 12 GEMM points per transpose and dtype of the weight, memory
 * bandwidth, and point-to-point latency and bandwidth. Gives *out, the same on all. options may be NULL. */
tsr_status tsr_cluster_measure(tsr_group *group, tsr_device *const *devices, size_t count,
                               const tsr_measure_options *options, tsr_cluster **out, tsr_error *error);

/* Gives *out. Errors: IO, FORMAT (with the place), MISMATCH (a major version that is not known). */
tsr_status tsr_cluster_read(tsr_context *context, const char *path, tsr_cluster **out, tsr_error *error);
tsr_status tsr_cluster_parse(tsr_context *context, const char *json, size_t bytes, tsr_cluster **out,
                             tsr_error *error);
/* Writes the JSON document. */
tsr_status tsr_cluster_write(const tsr_cluster *cluster, tsr_writer writer, void *user, tsr_error *error);
void tsr_cluster_destroy(tsr_cluster **cluster);

int tsr_cluster_member_count(const tsr_cluster *cluster);
/* The device's name, its usable memory. name is borrowed from the cluster. */
tsr_status tsr_cluster_get_member(const tsr_cluster *cluster, int member, const char **name,
                                  uint64_t *memory_bytes, tsr_error *error);
/* Replaces a member's memory (and caps its largest allocation accordingly). */
tsr_status tsr_cluster_set_memory(tsr_cluster *cluster, int member, uint64_t memory_bytes, tsr_error *error);
/* OK if every device of the cluster is what devices[] says it is now (name, driver, backend). [C] */
tsr_status tsr_cluster_match(const tsr_cluster *cluster, tsr_group *group, tsr_device *const *devices,
                             size_t count, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
