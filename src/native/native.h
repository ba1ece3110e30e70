/* Compiled twins of a few functions of the core, for requests as they mostly are.

   The Python code defines what they do: src/nebis/core/native.py says which function each stands for, and
   tests/native compares them. A twin gives the same bytes, or nothing at all for whatever is unusual, and then the
   Python function decides. They keep to four rules: no Python code is called, the interpreter is never let go of,
   nothing that is given to them is changed, and no cryptography is our own (SHA-256 is OpenSSL's, as hashlib's is).
   One is not about bytes: `go_on` drives a flow and calls what performs its asks, which is all that it does. */

#ifndef NEBIS_NATIVE_H
#define NEBIS_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define OPENSSL_SUPPRESS_DEPRECATED
#include <Python.h>
#include <openssl/sha.h>

/* Bytes that are being written: on the stack while they are few. */
enum { SMALL = 2048 };

typedef struct {
    char *start;
    size_t used, room;
    char small[SMALL];
} Buffer;

void buffer_begin(Buffer *buffer);
void buffer_end(Buffer *buffer);

/* Writes the canonical form of a tree; returns 0 if it is unusual, or there is no memory. Never sets an error. */
int write_form(Buffer *buffer, PyObject *tree, long depth);

PyObject *json_form(PyObject *module, PyObject *const *args, Py_ssize_t count);

PyObject *go_on(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);

PyObject *plain_array(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* A signature (HMAC-SHA-256) whose message is begun. */
typedef struct {
    PyObject_HEAD
    SHA256_CTX inner, outer;
} Begun;

typedef struct {
    const void *bytes;
    size_t size;
} Part;

/* Signs the message that goes on with these parts; returns NULL with an error set if there is no memory. */
PyObject *sign_parts(const Begun *begun, const Part *parts, size_t count);

extern PyType_Spec begun_spec, marking_spec, maker_spec;

#endif
