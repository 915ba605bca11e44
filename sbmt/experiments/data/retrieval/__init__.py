"""Retrieval: do two documents belong together?"""
