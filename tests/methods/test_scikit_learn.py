"""The estimators as scikit-learn sees them: its own checks, and a clear answer where it would cut a graph."""

import pickle
import warnings
from operator import attrgetter, methodcaller

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

import graphveil as gv
from graphveil.graph import Graph, csbm
from graphveil.methods import METHODS


@pytest.fixture(scope="module")
def graph():
    return csbm(0.5, n=200, f=6, d=6, seed=1)


class OnTables(gv.MLP):
    """The perceptron on tables of rows, so that scikit-learn's checks can hand it data: each table is a graph without
    links. Everything but the reading of the table is the estimator's own."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.target_tags.required = True
        return tags

    def fit(self, X, y):
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        self._names, numbers = np.unique(y, return_inverse=True)
        if len(self._names) < 2:
            raise ValueError("there is one class only")
        return super().fit(_without_links(X, numbers, len(self._names)))

    @property
    def classes_(self):
        self.check_fitted()
        return self._names

    @property
    def n_features_in_(self):
        if "_read_width" not in vars(self):
            raise AttributeError("n_features_in_")
        return self._read_width

    @n_features_in_.setter
    def n_features_in_(self, value):
        self._read_width = value

    def predict_proba(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        return self.predict_on(_without_links(X, np.zeros(len(X), int), len(self._names)))

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(1)]

    def score(self, X, y):
        return (self.predict(X) == y).mean()


def _without_links(X, labels, classes):
    everyone = np.ones(len(X), bool)
    masks = {"train_mask": everyone, "val_mask": ~everyone, "test_mask": ~everyone}
    nothing = np.zeros((2, 0), np.int64)
    return Graph.from_edge_index(nothing, X, labels, directed=False, num_classes=classes, **masks)


# scikit-learn's checks that do not hold here, each with the reason. One that begins to pass has to leave this list.
INAPPLICABLE = {
    "check_parameters_default_constructible": "there is no level by default: what is protected has to be said",
    "check_do_not_raise_errors_in_init_or_set_params": "what is no level is refused at once, before a plan is shown",
}
# Checks that need something that is not installed, or a setting of the environment; they may run elsewhere.
MAY_BE_SKIPPED = {"check_array_api_input", "check_classifier_data_not_an_array"}
# All checks that ran when this was written. One that is new has to be looked at, and listed.
CHECKS = {
    "check_array_api_input",
    "check_class_weight_classifiers",
    "check_classifier_data_not_an_array",
    "check_classifiers_classes",
    "check_classifiers_one_label",
    "check_classifiers_one_label_sample_weights",
    "check_classifiers_regression_target",
    "check_classifiers_train",
    "check_complex_data",
    "check_decision_proba_consistency",
    "check_dict_unchanged",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_dont_overwrite_parameters",
    "check_dtype_object",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimator_sparse_tag",
    "check_estimator_tags_renamed",
    "check_estimators_dtypes",
    "check_estimators_empty_data_messages",
    "check_estimators_fit_returns_self",
    "check_estimators_nan_inf",
    "check_estimators_overwrite_params",
    "check_estimators_partial_fit_n_features",
    "check_estimators_pickle",
    "check_estimators_unfitted",
    "check_f_contiguous_array_estimator",
    "check_fit1d",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit2d_predict1d",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_fit_score_takes_y",
    "check_get_params_invariance",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_mixin_order",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_no_attributes_set_in_init",
    "check_non_transformer_estimators_n_iter",
    "check_parameters_default_constructible",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
    "check_requires_y_none",
    "check_set_params",
    "check_supervised_y_2d",
    "check_supervised_y_no_nan",
    "check_valid_tag_types",
}


@pytest.mark.slow
def test_the_checks_of_scikit_learn():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = OnTables(gv.Public(), seed=0, epochs=60, show_progress=False)
        results = check_estimator(model, on_fail=None, on_skip=None)
    outcome = {result["check_name"]: result["exception"] for result in results if result["status"] != "passed"}
    wrong = {name: error for name, error in outcome.items() if name not in {*INAPPLICABLE, *MAY_BE_SKIPPED}}
    assert not wrong
    assert set(INAPPLICABLE) <= set(outcome), "a check that is listed as inapplicable passes"
    assert {result["check_name"] for result in results} == CHECKS


@pytest.mark.parametrize("name", [method.class_name for method in METHODS.values()])
def test_every_method_is_a_classifier_that_can_be_cloned(name):
    level = gv.Public() if name in ("SAGE", "DPSAGE") else gv.Edge()
    model = getattr(gv, name)(level, None if isinstance(level, gv.Public) else 2.0, seed=3)
    copy = clone(model)
    assert is_classifier(model)
    assert copy is not model
    assert copy.get_params() == model.get_params()
    tags = get_tags(model)
    assert not tags.input_tags.two_d_array, "what it learns from is a graph"
    assert not tags.non_deterministic
    assert get_tags(model.set_params(seed=None)).non_deterministic
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    assert not hasattr(model, "certificate_")


QUESTIONS = {name: methodcaller(name, [0]) for name in ("predict", "predict_proba", "score", "evaluate")}
QUESTIONS |= {name: attrgetter(name) for name in ("classes_", "logits_", "plan_", "certificate_")}


@pytest.mark.parametrize("ask", QUESTIONS)
def test_a_model_without_a_fit_says_so(ask):
    with pytest.raises(gv.InvalidInput, match="model = 'mlp': is not fitted yet; call fit first") as error:
        QUESTIONS[ask](gv.MLP(gv.Edge(), 1.0))
    assert isinstance(error.value, NotFittedError)
    again = pickle.loads(pickle.dumps(error.value))
    assert str(again) == str(error.value)


SEARCHES = {
    "cross_val_score": lambda model, *data: cross_val_score(model, *data),
    "cross_validate": lambda model, *data: cross_validate(model, *data, scoring="accuracy"),
    "GridSearchCV": lambda model, *data: GridSearchCV(model, {"clip": [0.5, 1.0]}).fit(*data),
}


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_over_folds_is_refused_with_advice(graph, search):
    model = gv.MLP(gv.KNeighbor(1), 4.0, seed=0, steps=2)
    with pytest.raises(gv.InvalidInput, match=r"cannot be cut into folds; .* use gv\.PrivateSearch$") as error:
        SEARCHES[search](model, graph)
    assert "\n" not in str(error.value)
    # With arrays scikit-learn begins to fit, and ends with the line that each fit was refused by.
    with pytest.raises(ValueError, match=r"labels are in the graph; .* gv\.PrivateSearch to choose among settings"):
        SEARCHES[search](model, graph.features.numpy(), graph.labels.numpy())


def test_levels_by_name():
    assert gv.MLP("none").level == gv.Public()
    assert gv.MLP("edge", 1.0).level == gv.Edge()
    assert gv.MLP("node", 1.0, max_degree=7).level == gv.Node(7)
    with pytest.raises(gv.InvalidInput, match=r"k = None: level k-neighbor needs a k, as in KNeighbor\(k=1\)"):
        gv.MLP("k-neighbor", 1.0)
    with pytest.raises(gv.InvalidInput, match="max_degree = None: level node needs a promise"):
        gv.MLP("node", 1.0)
    with pytest.raises(gv.InvalidInput, match="level = 'person': must be one of none, edge, k-neighbor, node"):
        gv.MLP("person", 1.0)


def test_dir_shows_the_public_names():
    shown = [name for name in dir(gv) if not name.startswith("_")]
    assert set(gv.__all__) - {"__version__"} <= set(shown)
    assert all(getattr(gv, name) is not None for name in gv.__all__)
    assert len(shown) == len(set(shown))
    assert not {"import_module", "TYPE_CHECKING", "Any", "attach", "Attached"} & set(shown)
