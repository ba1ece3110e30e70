/* A signature whose message is begun: `nebis.core.secret.Begun`.

   The low-level calls of OpenSSL have plain memory for a state. To copy and finish one of the contexts behind hashlib
   takes several times as long as hashing what a request has. */

#include "native.h"
#include <string.h>

/* HMAC (RFC 2104): the hash of the key's block, mixed with one byte. */
static void begin(SHA256_CTX *hash, const unsigned char *block, unsigned char mixed_in)
{
    unsigned char mixed[SHA256_CBLOCK];
    for (size_t place = 0; place < sizeof mixed; place++) {
        mixed[place] = block[place] ^ mixed_in;
    }
    SHA256_Init(hash);
    SHA256_Update(hash, mixed, sizeof mixed);
}

static PyObject *begun_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"key", "beginning", NULL};
    const char *key, *beginning;
    Py_ssize_t key_size, size;
    if (!PyArg_ParseTupleAndKeywords(args, names, "y#y#", keywords, &key, &key_size, &beginning, &size)) {
        return NULL;
    }
    if (key_size > SHA256_CBLOCK) {
        return PyErr_Format(PyExc_ValueError, "a key is no longer than a block of its hash");
    }
    Begun *self = (Begun *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    unsigned char block[SHA256_CBLOCK] = {0};
    memcpy(block, key, (size_t)key_size);
    begin(&self->inner, block, 0x36);
    begin(&self->outer, block, 0x5c);
    SHA256_Update(&self->inner, beginning, (size_t)size);
    return (PyObject *)self;
}

static void begun_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *sign_parts(const Begun *begun, const Part *parts, size_t count)
{
    PyObject *signature = PyBytes_FromStringAndSize(NULL, SHA256_DIGEST_LENGTH);
    if (signature == NULL) {
        return NULL;
    }
    unsigned char *digest = (unsigned char *)PyBytes_AS_STRING(signature);
    SHA256_CTX inner = begun->inner, outer = begun->outer;
    for (size_t place = 0; place < count; place++) {
        SHA256_Update(&inner, parts[place].bytes, parts[place].size);
    }
    SHA256_Final(digest, &inner);
    SHA256_Update(&outer, digest, SHA256_DIGEST_LENGTH);
    SHA256_Final(digest, &outer);
    return signature;
}

static PyObject *begun_sign(PyObject *self, PyObject *rest)
{
    if (!PyBytes_Check(rest)) {
        return PyErr_Format(PyExc_TypeError, "what is signed is bytes");
    }
    Part part = {PyBytes_AS_STRING(rest), (size_t)PyBytes_GET_SIZE(rest)};
    return sign_parts((Begun *)self, &part, 1);
}

static PyObject *begun_reduce(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyErr_Format(
        PyExc_TypeError, "What a Secret has begun is never pickled or copied, no more than the Secret itself."
    );
}

static PyMethodDef begun_methods[] = {
    {"sign", begun_sign, METH_O, "Give the signature of the whole message, of which this is the rest."},
    {"__reduce__", begun_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot begun_slots[] = {
    {Py_tp_new, begun_new},
    {Py_tp_dealloc, begun_dealloc},
    {Py_tp_methods, begun_methods},
    {Py_tp_doc, "A signature whose message is begun."},
    {0, NULL},
};

PyType_Spec begun_spec = {
    .name = "nebis.core._native.Begun",
    .basicsize = sizeof(Begun),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = begun_slots,
};
