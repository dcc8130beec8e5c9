/* tessera/version.h: the version of these headers. meson.build reads it from here. */
#ifndef TESSERA_VERSION_H
#define TESSERA_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_VERSION "0.1.0"

/* The version of the library that is linked. */
const char *tsr_version(void);

#ifdef __cplusplus
}
#endif
#endif
