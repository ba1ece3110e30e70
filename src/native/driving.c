/* A flow that goes on until it has to wait: `nebis.flow.go_on`.

   Python code has to catch StopIteration to learn what a flow returned, and an exception with its traceback costs more
   than all else that is done here. */

#include "native.h"

static PyObject *pair_of(PyObject *is_over, PyObject *value)
{
    PyObject *pair = PyTuple_New(2);
    if (pair == NULL) {
        Py_DECREF(value);
        return NULL;
    }
    PyTuple_SET_ITEM(pair, 0, Py_NewRef(is_over));
    PyTuple_SET_ITEM(pair, 1, value);
    return pair;
}

/* What a performer raised is for the flow, which is unusual. */
static PyObject *raise_inside(PyObject *definition, PyObject *flow, PyObject *performs, PyObject *turn)
{
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    PyErr_NormalizeException(&kind, &error, &trace);
    if (trace != NULL) {
        PyException_SetTraceback(error, trace);
    }
    PyObject *given[] = {flow, Py_None, performs, turn, error};
    PyObject *gone_on = PyObject_Vectorcall(definition, given, 5, NULL);
    Py_XDECREF(kind);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    return gone_on;
}

/* Lets it go on until it ends or asks for what nobody here performs; takes the answer. */
static PyObject *drive(PyObject *definition, PyObject *flow, PyObject *answer, PyObject *performs, PyObject *turn)
{
    for (;;) {
        PyObject *value;
        PySendResult sent = PyIter_Send(flow, answer, &value);
        Py_DECREF(answer);
        if (sent != PYGEN_NEXT) {
            return sent == PYGEN_RETURN ? pair_of(Py_True, value) : NULL;
        }
        PyObject *perform =
            performs == NULL ? NULL : PyDict_GetItemWithError(performs, (PyObject *)Py_TYPE(value));
        if (perform == NULL) {
            if (PyErr_Occurred()) {
                Py_DECREF(value);
                return NULL;
            }
            return pair_of(Py_False, value);
        }
        PyObject *given[] = {turn, value};
        Py_INCREF(perform);
        answer = PyObject_Vectorcall(perform, given, 2, NULL);
        Py_DECREF(perform);
        Py_DECREF(value);
        if (answer == NULL) {
            return raise_inside(definition, flow, performs, turn);
        }
    }
}

PyObject *go_on(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    (void)module;
    if (count < 1) {
        return PyErr_Format(PyExc_TypeError, "its definition comes first");
    }
    int has_performers = count == 5 && PyDict_CheckExact(args[3]);
    if (names != NULL || !(has_performers || count == 2 || count == 3)) {
        return PyObject_Vectorcall(args[0], args + 1, (size_t)(count - 1), names);
    }
    PyObject *answer = Py_NewRef(count > 2 ? args[2] : Py_None);
    return drive(args[0], args[1], answer, has_performers ? args[3] : NULL, has_performers ? args[4] : NULL);
}
