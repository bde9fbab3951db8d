"""Versions written from fitted estimators: scikit-learn, LightGBM, XGBoost, CatBoost. See ``write.py``."""
